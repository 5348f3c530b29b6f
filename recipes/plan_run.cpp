#include "recipes/plan_run.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/strings.h"
#include "config/config.h"
#include "data/sampler.h"
#include "plan/micro_auto.h"
#include "plan/micro_size.h"
#include "recipes/model_session.h"
#include "recipes/plan_inputs.h"
#include "recipes/product_choice.h"
#include "recipes/settings_map.h"
#include "recipes/step_plan.h"
#include "train/flops.h"

namespace lorikeet::recipes {
namespace {

constexpr int kUsualMostDevices = 8;  // of a card that is only named
constexpr std::int64_t kLeastMicroTokens = 256;
constexpr std::size_t kMostMicroSizes = 6;

double as_double(std::int64_t value) { return static_cast<double>(value); }

std::vector<int> device_counts(const PlanRequest& request, const PlannedDevice& device) {
  if (request.devices) return *request.devices == 1 ? std::vector{1} : std::vector{1, *request.devices};
  const int most = request.most_devices.value_or(device.here > 0 ? device.here : kUsualMostDevices);
  std::vector<int> counts;
  for (int count = 1; count <= most; ++count) counts.push_back(count);
  return counts;
}

// Powers of two from the longest row to what a step holds, the largest ones where they are many, and the
// config's own.
std::vector<std::int64_t> micro_sizes(const config::Settings& settings, std::int64_t longest,
                                      std::int64_t most, std::int64_t usual) {
  std::int64_t size = kLeastMicroTokens;
  while (size < longest) size *= 2;
  std::vector<std::int64_t> sizes{size};
  while (size < std::min(most, 2 * usual)) sizes.push_back(size *= 2);
  if (sizes.size() > kMostMicroSizes) sizes.erase(sizes.begin(), sizes.end() - kMostMicroSizes);
  if (const auto own = settings.batch.micro_tokens) sizes.push_back(*own);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

DataFacts facts_of(const PlannedRows& planned, const data::Sampler& sampler) {
  const data::TokenDataset& dataset = planned.rows;
  DataFacts facts{
      .assumed = planned.assumed,
      .examples = static_cast<std::int64_t>(dataset.size()),
      .tokens = dataset.total_tokens(),
      .label_tokens = dataset.total_labels(),
      .longest = dataset.longest(),
      .steps = sampler.total_steps(),
      .tokens_per_step = as_double(dataset.total_tokens()) / as_double(sampler.steps_in_epoch(0))};
  std::vector<std::int64_t> lengths;
  lengths.reserve(dataset.size());
  for (std::size_t i = 0; i < dataset.size(); ++i) lengths.push_back(dataset.length(i));
  std::sort(lengths.begin(), lengths.end());
  for (const int percent : {10, 50, 90, 99}) {
    const std::size_t at = lengths.size() * static_cast<std::size_t>(percent) / 100;
    facts.percentiles.emplace_back(percent, lengths[std::min(at, lengths.size() - 1)]);
  }
  return facts;
}

// The mean over an epoch's steps.
plan::Work work_of(const ModelSession& session, const data::TokenDataset& dataset,
                   const data::Sampler& sampler) {
  train::StepSize all{dataset.total_tokens(), dataset.total_labels(), 0};
  const train::AttentionSquares squares(session.model->spec().layers);
  for (std::size_t i = 0; i < dataset.size(); ++i) all.attention_squares += squares.of(dataset.length(i));
  const double steps = as_double(sampler.steps_in_epoch(0));
  const nn::ModelShape& shape = session.model->shape();
  const train::AdapterSize adapter = train::adapter_size(*session.adapters, session.model->spec());
  const double flops = train::step_flops(shape, adapter, all);
  const double head = flops - train::step_flops(shape, adapter, {all.tokens, 0, all.attention_squares});
  const precision::Policy& policy = session.policy;
  return {.tokens = as_double(all.tokens) / steps,
          .layers = as_double(shape.layers),
          .flops = flops / steps,
          .recomputed_flops = train::recomputed_flops(shape, adapter, all) / steps,
          .gradient_bytes = as_double(adapter.trained) * as_double(dtype_size(policy.reduce)),
          .frozen_bytes = as_double(session.model->store().bytes()),
          .uses = plan::unit_uses(shape, as_double(dtype_size(policy.base_storage)), head / flops)};
}

/// The functions that all_options asks, with what they answered before.
class Questions {
 public:
  Questions(const ModelSession& session, const config::Settings& settings, const ops::DryTarget& target,
            const data::TokenDataset& dataset, const data::Sampler& sampler)
      : session_(session), settings_(settings), target_(target), dataset_(dataset), sampler_(sampler) {}

  plan::MemoryEstimate memory(const plan::Choice& choice) {
    const auto key = std::tuple(choice.micro_tokens, choice.checkpointing, choice.degree);
    const auto found = memories_.find(key);
    if (found != memories_.end()) return found->second;
    plan::MemoryInput input =
        memory_input(session_, settings_, largest(choice.micro_tokens), choice.degree, target_);
    input.checkpointing = choice.checkpointing;
    return memories_[key] = plan::step_memory(input);
  }

  plan::Spread spread(int devices, std::int64_t micro_tokens) {
    const auto key = std::pair(devices, micro_tokens);
    const auto found = spreads_.find(key);
    if (found != spreads_.end()) return found->second;
    return spreads_[key] = plan::spread_of_steps(dataset_, sampler_, options(micro_tokens), devices);
  }

  plan::MicroSize largest(std::int64_t micro_tokens) {
    const auto found = sizes_.find(micro_tokens);
    if (found != sizes_.end()) return found->second;
    return sizes_[micro_tokens] = plan::largest_micro_batch(dataset_, sampler_, options(micro_tokens));
  }

 private:
  data::MicroOptions options(std::int64_t micro_tokens) const {
    return micro_options(settings_, micro_tokens);
  }

  const ModelSession& session_;
  const config::Settings& settings_;
  const ops::DryTarget& target_;
  const data::TokenDataset& dataset_;
  const data::Sampler& sampler_;
  std::map<std::tuple<std::int64_t, bool, int>, plan::MemoryEstimate> memories_;
  std::map<std::int64_t, plan::MicroSize> sizes_;
  std::map<std::pair<int, std::int64_t>, plan::Spread> spreads_;
};

std::string describe_model(const ModelSession& session) {
  const nn::ModelShape& shape = session.model->shape();
  return std::to_string(shape.layers) + " layers of " + std::to_string(shape.hidden_size) +
         ", vocabulary of " + std::to_string(shape.vocab_size) + ": " +
         format_bytes(static_cast<std::uint64_t>(session.model->store().bytes())) + " of frozen weights" +
         (session.checkpoint ? "" : " (by config.json alone: no weights are there)") + ", adapter of " +
         std::to_string(session.adapters->store().numel()) + " parameters";
}

// Only what differs from the config, or from what auto would take, is said again.
std::vector<std::string> command_of(const PlanRequest& request, const plan::Choice& best,
                                    std::int64_t usual_micro_tokens) {
  const config::Settings& settings = request.settings;
  std::vector<std::string> command{"lorikeet", "run"};
  if (best.devices > 1) {
    command.insert(command.end(), {"--nproc", std::to_string(best.devices), "lora_finetune_distributed"});
  } else {
    command.emplace_back("lora_finetune_single_device");
  }
  command.insert(command.end(), {"--config", request.config});
  command.insert(command.end(), request.overrides.begin(), request.overrides.end());
  const auto drop = [&](const std::string& name) {
    std::erase_if(command, [&](const std::string& word) { return word.starts_with(name + "="); });
  };
  const auto add = [&](const std::string& name, const std::string& value) {
    drop(name);
    command.push_back(name + "=" + value);
  };
  if (settings.batch.micro_tokens.value_or(usual_micro_tokens) != best.micro_tokens)
    add("batch.micro_tokens", std::to_string(best.micro_tokens));
  if (recomputes_layers(settings) != best.checkpointing)
    add("training.activation_checkpointing", best.checkpointing ? "full" : "none");
  if (best.devices == 1) {
    drop("distributed.strategy");
    drop("distributed.shard_degree");
    return command;
  }
  add("distributed.strategy", best.strategy());
  if (best.strategy() == "hybrid") {
    add("distributed.shard_degree", std::to_string(best.degree));
  } else if (settings.distributed.shard_degree) {
    drop("distributed.shard_degree");
    command.emplace_back("~distributed.shard_degree");
  }
  return command;
}

}  // namespace

std::unique_ptr<RunPlan> plan_run(const PlanRequest& request) {
  const config::Settings& settings = request.settings;
  auto out = std::make_unique<RunPlan>();
  out->device = planned_device(request.device, settings);
  const ModelSession session = planned_model(request, out->device.policy);
  // A card that is only named has nothing to choose.
  if (out->device.target.device == at::kCPU && settle_products(session, settings))
    out->device.target = step_target(out->device.policy, at::kCPU);
  measure_rate(out->device, session.model->shape());
  out->model = describe_model(session);

  const PlannedRows planned = planned_rows(request, session);
  const data::Sampler sampler(planned.rows, sampler_options(settings));
  out->data = facts_of(planned, sampler);
  out->work = work_of(session, planned.rows, sampler);

  Questions questions(session, settings, out->device.target, planned.rows, sampler);
  const bool cuda = out->device.target.device == at::kCUDA;
  const std::int64_t usual = cuda ? plan::kUsualMicroTokensCuda : plan::kUsualMicroTokensCpu;
  const plan::Job job{
      .work = out->work,
      .memory = [&](const plan::Choice& choice) { return questions.memory(choice); },
      .spread = [&](int devices, std::int64_t micro) { return questions.spread(devices, micro); }};
  const std::int64_t most = questions.largest(INT64_MAX).tokens;
  const plan::Range range{.devices = device_counts(request, out->device),
                          .micro_tokens = micro_sizes(settings, out->data.longest, most, usual),
                          .checkpointing = {false, true}};
  out->usual_micro_tokens = usual;
  out->options = plan::all_options(job, out->device.machine, range);
  out->decision = plan::decide(out->options, out->device.machine, out->work, usual);
  if (out->decision.best != nullptr) out->command = command_of(request, out->decision.best->choice, usual);
  return out;
}

}  // namespace lorikeet::recipes
