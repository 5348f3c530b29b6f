#include "recipes/step_plan.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "ops/dtype.h"
#include "ops/matmul/matmul.h"
#include "parallel/weight_gatherer.h"
#include "plan/card_time.h"
#include "plan/micro_auto.h"
#include "plan/rescue.h"
#include "recipes/settings_map.h"

namespace lorikeet::recipes {
namespace {

std::string bytes(std::int64_t count) {
  return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

// Of the frozen base on one of `degree` ranks that share it, with the units that are gathered at a time.
std::int64_t held_bytes(const nn::CausalLM& model, int degree, at::DeviceType device, bool on_host) {
  if (on_host && device != at::kCPU) return model.store().vector_bytes();
  const std::int64_t own = model.store().held_bytes(degree);
  if (degree == 1) return own;
  const parallel::FetchCost cost = parallel::fetch_cost(model, degree);
  // Gloo gathers into a buffer of its own first.
  return own + cost.buffer_bytes + (device == at::kCPU ? cost.largest_unit_bytes : 0);
}

// The run with its knobs turned.
plan::MemoryInput turned(plan::MemoryInput input, const plan::Knobs& knobs) {
  input.lora.rank = knobs.rank;
  plan::MicroSize& micro = input.micro;
  micro.longest = std::min(micro.longest, knobs.longest);
  micro.tokens = std::min(micro.tokens, std::max(knobs.micro_tokens, micro.longest));
  micro.label_tokens = std::min(micro.label_tokens, micro.tokens);
  return input;
}

}  // namespace

ops::DryTarget step_target(const precision::Policy& policy, at::DeviceType device) {
  return {.device = device,
          .native_products = ops::multiplies_natively(ops::to_torch(policy.compute), at::Device(device)),
          .threads = at::get_num_threads()};
}

ops::DryTarget step_target(const precision::Policy& policy, const device::Device& device) {
  ops::DryTarget target = step_target(policy, torch_device(device).type());
  const auto& cards = device::cuda_devices();
  if (device.is_cuda() && device.index < std::ssize(cards))
    target.capability = cards[static_cast<std::size_t>(device.index)].capability();
  return target;
}

std::int64_t usual_micro_tokens(const ModelSession& session, const config::Settings& settings) {
  if (settings.batch.micro_tokens) return *settings.batch.micro_tokens;
  return plan::usual_micro_tokens(session.model->shape(), session.torch_device().type(), peak_flops(session));
}

plan::MemoryInput memory_input(const ModelSession& session, const config::MemorySaving& saving,
                               const plan::MicroSize& micro, int degree, const ops::DryTarget& target,
                               bool cuda_graphs) {
  return {.model = &session.model->spec(),
          .lora = session.adapters->config(),
          .policy = session.policy,
          .target = target,
          .frozen_bytes = held_bytes(*session.model, degree, target.device, saving.offload.weights),
          .micro = micro,
          .saving = saving,
          .cuda_graphs = cuda_graphs};
}

plan::MicroSize StepPlan::largest(std::int64_t micro_tokens) const {
  return largest_.of(micro_options(settings_, micro_tokens));
}

plan::MemoryEstimate StepPlan::memory(std::int64_t micro_tokens, int degree) const {
  const ops::DryTarget target = step_target(session_.policy, session_.device);
  return plan::step_memory(
      memory_input(session_, saving_, largest(micro_tokens), degree, target, settings_.training.cuda_graphs));
}

plan::AutomaticMicro StepPlan::micro_tokens(const LeastMemory& device, int degree) const {
  const std::int64_t usual = usual_micro_tokens_;
  if (settings_.batch.micro_tokens) return {.tokens = usual, .of_kind = usual};
  const auto need = [&](std::int64_t tokens) { return memory(tokens, degree).total(); };
  return plan::automatic_micro_tokens(usual, dataset_.longest(), need, device.of_kind, device.free);
}

std::int64_t StepPlan::least_micro_tokens() const {
  if (settings_.batch.micro_tokens) return usual_micro_tokens_;
  return plan::automatic_micro_tokens(usual_micro_tokens_, dataset_.longest(),
                                      [](std::int64_t) { return false; });
}

std::optional<std::int64_t> StepPlan::confirmed(
    std::int64_t micro_tokens, const std::function<bool(const data::MicroOptions&)>& try_step) const {
  if (settings_.batch.micro_tokens) return micro_tokens;
  bool passed = false;
  const std::int64_t tokens =
      plan::automatic_micro_tokens(micro_tokens, dataset_.longest(), [&](std::int64_t candidate) {
        passed = try_step(micro_options(settings_, candidate));
        return passed;
      });
  return passed ? std::optional(tokens) : std::nullopt;
}

std::string StepPlan::out_of_memory(std::int64_t got, std::int64_t micro_tokens, int degree,
                                    int world_size) const {
  return "out of memory: a step needs about " + bytes(memory(micro_tokens, degree).total()) +
         " and this process got " + bytes(got) + " before it was refused more; " +
         changes_within(got, micro_tokens, degree, world_size);
}

void StepPlan::require_held_fits(std::int64_t available, std::int64_t micro_tokens, int degree,
                                 int world_size) const {
  const plan::MemoryEstimate need = memory(micro_tokens, degree);
  if (need.held() <= available) return;
  throw Error("[memory] weights (" + bytes(need.weights) + "), adapter (" + bytes(need.adapter) +
                  ") and optimizer (" + bytes(need.optimizer) + ") need " + bytes(need.held()) +
                  ", a device has " + bytes(available) + " free; " +
                  changes_within(available, micro_tokens, degree, world_size),
              ErrorKind::kEnvironment);
}

std::string StepPlan::changes_within(std::int64_t limit, std::int64_t micro_tokens, int degree,
                                     int world_size) const {
  const ops::DryTarget target = step_target(session_.policy, session_.device);
  const plan::MicroSize largest_now = largest(micro_tokens);
  const plan::Knobs now{.micro_tokens = largest_now.tokens,
                        .longest = largest_now.longest,
                        .rank = settings_.lora.rank,
                        .saving = saving_,
                        .degree = degree};
  const auto need = [&](const plan::Knobs& knobs) {
    plan::MemoryInput input =
        turned(memory_input(session_, knobs.saving, largest_now, knobs.degree, target), knobs);
    if (knobs.micro_tokens < now.micro_tokens) input.micro.sequences = largest(knobs.micro_tokens).sequences;
    return plan::step_memory(input).total();
  };
  auto changes = plan::changes_that_fit(now, world_size, need, limit, offloads_on(target.device));
  if (settings_.training.cuda_graphs) {
    // What saves memory another way is found without them, and most of it can't be had with them.
    for (plan::Rescue& change : changes) change.overrides = "training.cuda_graphs=false " + change.overrides;
    if (const std::int64_t alone = need(now); alone <= limit)
      changes.insert(changes.begin(), {"training.cuda_graphs=false", alone, /*same_result=*/true});
  }
  if (changes.empty())
    return "nothing that can be set would fit: more devices (distributed.strategy=shard), one with more "
           "memory, or a smaller base";
  std::string text = "these would fit, by the plan of docs/memory.md:";
  for (const plan::Rescue& change : changes) {
    text += "\n  " + change.overrides + "  (" + bytes(change.bytes) + ", " +
            (change.same_result ? "computes the same)" : "computes something else)");
  }
  return text;
}

void warn_of_smaller_micro(std::int64_t before, std::int64_t now, const std::string& memory) {
  log_warning("micro-batches of at most " + std::to_string(now) + " tokens instead of " +
              std::to_string(before) + ", which need more memory than " + memory +
              ": losses may differ in their last digits from those of a run that has it");
}

}  // namespace lorikeet::recipes
