#include "recipes/step_choice.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "ops/capability.h"
#include "plan/micro_auto.h"
#include "plan/options.h"
#include "recipes/planned_device.h"
#include "recipes/settings_map.h"
#include "recipes/step_job.h"

namespace lorikeet::recipes {
namespace {

std::string bytes(std::int64_t count) {
  return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

std::string words(const config::MemorySaving& saving) {
  return "activation_checkpointing=" + std::string(name_of(saving.checkpointing)) +
         " offload=" + std::string(name_of(saving.offload));
}

// This machine. For a card without a data sheet's rate in this precision one is assumed: it only ranks the
// choices, by recomputation's time against that of copies.
DeviceRequest request_of(const StepChoiceInput& in) {
  constexpr double kAssumed16 = 5e13, kAssumed32 = 1e13;  // FLOP/s
  const device::Device& device = in.session.device;
  if (!device.is_cuda() || peak_flops(in.session)) return {};
  const std::string& name = device::cuda_devices().at(static_cast<std::size_t>(device.index)).name;
  const double assumed = dtype_size(in.session.policy.compute) == 4 ? kAssumed32 : kAssumed16;
  log_info("no rate is known of '" + escape_control(name) + "' in this precision: " +
           format_number("%.0f TFLOP/s", assumed / 1e12) + " are assumed to choose how memory is saved");
  return {.flops_per_second = assumed};
}

// Looks for the fastest step on one rank's device.
class Search {
 public:
  Search(const StepChoiceInput& in, const comm::Placement& ranks)
      : in_(in),
        device_(planned_device(request_of(in), in.settings)),
        target_(step_target(in.session.policy, in.session.device)),
        job_(in.session, in.settings, target_, in.dataset, in.sampler),
        world_size_(ranks.world_size) {
    settle_rate(device_, in.session, in.dataset);
    // Of what ranks wait for, no choice here changes anything.
    device_.machine.link = [](int) { return plan::Link{.bytes_per_second = 1e10}; };
    device_.machine.shared = false;
    // all_options takes all ranks for one machine's.
    device_.machine.host_memory_bytes =
        device_.machine.host_memory_bytes / ranks.local_size * ranks.world_size;
    const auto& training = in.settings.training;
    grades_ =
        training.activation_checkpointing ? std::vector{*training.activation_checkpointing} : all_grades();
    offloads_ = training.offload ? std::vector{*training.offload}
                : in.degree == 1 ? offloads_on(target_.device)
                                 : std::vector<config::Offload>{{}};
  }

  /// Among `micro_tokens` (ascending), within `limit` bytes; empty where none fits.
  std::optional<plan::Option> fastest(std::vector<std::int64_t> micro_tokens,
                                      std::optional<std::int64_t> limit) {
    plan::Machine machine = device_.machine;
    machine.memory_bytes = limit.value_or(INT64_MAX);
    const std::int64_t usual = micro_tokens.back();
    const auto options = plan::all_options(job_.job(), machine,
                                           {.devices = {world_size_},
                                            .micro_tokens = std::move(micro_tokens),
                                            .checkpointing = grades_,
                                            .offload = offloads_,
                                            .degree = in_.degree});
    const plan::Option* found = plan::fastest(options, usual, [](const plan::Option&) { return true; });
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }

  config::MemorySaving most_saving() const { return {grades_.back(), offloads_.back()}; }

 private:
  const StepChoiceInput& in_;
  PlannedDevice device_;
  ops::DryTarget target_;
  StepJob job_;
  int world_size_;
  std::vector<config::ActivationCheckpointing> grades_;
  std::vector<config::Offload> offloads_;
};

// Micro-batches that are the same on every device of the kind; smaller ones only where memory is short now,
// and then first of all another saving.
StepChoice searched(const StepChoiceInput& in, const comm::Placement& ranks, std::int64_t usual) {
  Search search(in, ranks);
  std::vector<std::int64_t> sizes;
  if (in.begun_with) {
    sizes = {*in.begun_with};
  } else if (in.settings.batch.micro_tokens) {
    sizes = {*in.settings.batch.micro_tokens};
  } else {
    sizes = plan::automatic_sizes(usual, in.dataset.longest());
  }
  StepChoice choice{.micro_tokens = sizes.front(), .micro_tokens_of_kind = sizes.front()};
  auto found = search.fastest(sizes, in.memory.of_kind);
  if (found) choice.micro_tokens_of_kind = found->choice.micro_tokens;
  if (found && in.memory.free && found->memory.total() > *in.memory.free) {
    found = search.fastest({choice.micro_tokens_of_kind}, in.memory.free);
    if (!found) found = search.fastest(sizes, in.memory.free);
  }
  choice.saving = found ? found->choice.saving : search.most_saving();
  if (found) choice.micro_tokens = found->choice.micro_tokens;
  log_info("memory saving: " + words(choice.saving) +
           (found ? ", the fastest that fits by the plan: " +
                        format_number("%.3g tokens/s", found->tokens_per_second) + ", " +
                        bytes(found->memory.total()) + " a device"
                  : ", all that there is: nothing fits by the plan"));
  return choice;
}

Json as_json(const StepChoice& choice) {
  Json json;
  return json.set("micro_tokens", choice.micro_tokens)
      .set("of_kind", choice.micro_tokens_of_kind)
      .set("checkpointing", static_cast<std::int64_t>(choice.saving.checkpointing))
      .set("activations", choice.saving.offload.activations)
      .set("weights", choice.saving.offload.weights);
}

StepChoice from_json(const std::string& text) {
  const Json json = Json::parse(text, "the first rank's choice");
  const JsonView view(json, "the first rank's choice");
  return {.micro_tokens = view.at("micro_tokens").as_int(),
          .micro_tokens_of_kind = view.at("of_kind").as_int(),
          .saving = {static_cast<config::ActivationCheckpointing>(view.at("checkpointing").as_int()),
                     {view.at("activations").as_bool(), view.at("weights").as_bool()}}};
}

void report(const StepChoice& choice, const StepChoiceInput& in) {
  log_info("memory of a step: " + bytes(choice.memory.total()) + " expected, with micro-batches of at most " +
           std::to_string(choice.micro_tokens) + " tokens" +
           (in.dataset.longest() > choice.micro_tokens
                ? ", the longest row's " + std::to_string(in.dataset.longest()) + " excepted"
                : ""));
  if (const std::int64_t host = choice.memory.host_total(); host > 0)
    log_info("memory of the host for what is offloaded: " + bytes(host) + " expected");
  if (in.memory.available && choice.memory.total() > *in.memory.available) {
    log_warning("that is more than a device has free (" + bytes(*in.memory.available) +
                "); set training.activation_checkpointing=auto training.offload=auto, or lower "
                "batch.micro_tokens, should it run out; `lorikeet plan` shows what fits");
  }
}

void require_graphs_possible(const StepChoiceInput& in) {
  if (!in.settings.training.cuda_graphs) return;
  const auto refuse = [](const std::string& why) {
    throw Error("[training.cuda_graphs] expected to be false: " + why);
  };
  if (const auto why = obstacle_to_graphs(in.session, step_target(in.session.policy, in.session.device)))
    refuse(*why);
  if (in.degree > 1)
    refuse(
        "ranks share the weights, which come and go within a step; with distributed.strategy=replicate they "
        "stay");
}

// What is offloaded lies in pinned memory, which can't be swapped: the kernel would end the run without a
// word.
// All ranks decide alike, before one of them takes any.
void require_host_has_room(const StepChoice& choice, RankGroup& group) {
  const std::int64_t wanted = choice.memory.host_total();
  if (wanted == 0) return;
  const int ranks_here = group.placement().local_size;
  const auto own = available_memory(device::Device{}, ranks_here);
  const std::int64_t least = group.least("main memory for offloading", own.value_or(wanted));
  if (wanted <= least) return;
  throw Error("[training.offload] expected " + bytes(wanted) + " of main memory for each of " +
                  std::to_string(ranks_here) + " processes of a machine, got " + bytes(least) +
                  " free; offload less, or lower batch.micro_tokens",
              ErrorKind::kEnvironment);
}

}  // namespace

config::MemorySaving least_memory_saving(const config::Settings& settings) {
  return {settings.training.activation_checkpointing.value_or(config::ActivationCheckpointing::kFull),
          settings.training.offload.value_or(config::Offload{})};
}

std::optional<std::string> obstacle_to_graphs(const ModelSession& session, const ops::DryTarget& target) {
  if (target.device != at::kCUDA) return "the device is a CPU, which has no graphs";
  const auto& layers = session.model->spec().layers;
  if (std::any_of(layers.begin(), layers.end(),
                  [](const auto& layer) { return layer.experts.has_value(); }) &&
      !computes_experts_at_once(session.policy, target))
    return "the host has to read in each layer how many tokens each expert has, which can't be recorded: "
           "experts are computed at once in bf16 and fp16, on cards of compute capability 8.0 and above, "
           "without precision.matmul";
  if (session.policy.matmul == config::Matmul::kFp8 && !ops::is_hopper(target.capability))
    return "libtorch's products in fp8 may leave the stream of a recording on cards that aren't "
           "Hopper's; leave precision.matmul out";
  return std::nullopt;
}

StepChoice choose_step(const StepChoiceInput& in, StepPlan& plan, RankGroup& group) {
  require_graphs_possible(in);
  const auto& training = in.settings.training;
  const int world_size = group.placement().world_size;
  if (training.offload && training.offload->weights && in.degree > 1) {
    throw Error("[training.offload] weights can't be offloaded where ranks share them (" +
                std::to_string(in.degree) +
                " a copy); choose activations or none, or distributed.strategy=replicate");
  }
  StepChoice choice;
  if (training.activation_checkpointing && training.offload) {
    const plan::AutomaticMicro micro = plan.micro_tokens(in.memory, in.degree);
    choice = {.micro_tokens = in.begun_with.value_or(micro.tokens),
              .micro_tokens_of_kind = micro.of_kind,
              .saving = plan.saving()};
  } else {
    // One rank: measured rates differ.
    choice = from_json(group.share(
        "step", group.first() ? as_json(searched(in, group.placement(), plan.usual_micro_tokens())).dump()
                              : std::string()));
    plan.save_by(choice.saving);
  }
  if (!in.begun_with && choice.micro_tokens < choice.micro_tokens_of_kind)
    warn_of_smaller_micro(choice.micro_tokens_of_kind, choice.micro_tokens, "is free");
  choice.memory = plan.memory(choice.micro_tokens, in.degree);
  if (in.memory.available)
    plan.require_held_fits(*in.memory.available, choice.micro_tokens, in.degree, world_size);
  report(choice, in);
  require_host_has_room(choice, group);
  return choice;
}

}  // namespace lorikeet::recipes
