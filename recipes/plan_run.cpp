#include "recipes/plan_run.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "config/config.h"
#include "data/sampler.h"
#include "plan/card_time.h"
#include "plan/micro_auto.h"
#include "plan/micro_size.h"
#include "recipes/model_session.h"
#include "recipes/plan_inputs.h"
#include "recipes/product_choice.h"
#include "recipes/settings_map.h"
#include "recipes/step_choice.h"
#include "recipes/step_job.h"
#include "recipes/step_plan.h"
#include "train/determinism.h"

namespace lorikeet::recipes {
namespace {

constexpr std::int64_t kLeastMicroTokens = 256;
constexpr std::size_t kMostMicroSizes = 6;

double as_double(std::int64_t value) { return static_cast<double>(value); }

std::vector<int> device_counts(const PlanRequest& request, const PlannedDevice& device) {
  if (request.devices) return *request.devices == 1 ? std::vector{1} : std::vector{1, *request.devices};
  const int most = request.most_devices.value_or(std::max(device.here, 1));
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

std::string describe_model(const ModelSession& session) {
  const nn::ModelShape& shape = session.model->shape();
  return std::to_string(shape.layers) + " layers of " + std::to_string(shape.hidden_size) +
         ", vocabulary of " + std::to_string(shape.vocab_size) + ": " +
         format_bytes(static_cast<std::uint64_t>(session.model->store().bytes())) + " of frozen weights" +
         (session.checkpoint ? "" : " (by config.json alone: no weights are there)") + ", adapter of " +
         std::to_string(session.adapters->store().numel()) + " parameters";
}

// Whether a run with this setting would take other devices than these GPUs: the CPU, or one card for several.
bool takes_others(const config::DeviceSetting& setting, int devices) {
  using Kind = config::DeviceSetting::Kind;
  return setting.kind == Kind::kCpu || (devices > 1 && (setting.kind == Kind::kCard || setting.index));
}

// Only what differs from the config, or from what auto would take, is said again.
std::vector<std::string> command_of(const PlanRequest& request, const plan::Choice& best, bool on_gpus,
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
  if (on_gpus && takes_others(settings.device, best.devices)) add("device", "auto");
  if (settings.batch.micro_tokens.value_or(usual_micro_tokens) != best.micro_tokens)
    add("batch.micro_tokens", std::to_string(best.micro_tokens));
  if (settings.training.activation_checkpointing != best.saving.checkpointing)
    add("training.activation_checkpointing", std::string(name_of(best.saving.checkpointing)));
  if (settings.training.offload != best.saving.offload)
    add("training.offload", std::string(name_of(best.saving.offload)));
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
  train::set_deterministic(settings.training.deterministic);  // a step's dry runs go by it
  out->device = planned_device(request.device, settings);
  const ModelSession session = planned_model(request, out->device.policy);
  // A card that is only named has nothing to choose.
  if (out->device.target.device == at::kCPU && settle_products(session, settings))
    out->device.target = step_target(out->device.policy, at::kCPU);
  if (settings.training.cuda_graphs) {
    if (const auto why = obstacle_to_graphs(session, out->device.target))
      throw Error("[training.cuda_graphs] expected to be false: " + *why);
  }
  out->model = describe_model(session);

  const PlannedRows planned = planned_rows(request, session);
  const data::Sampler sampler(planned.rows, sampler_options(settings));
  out->data = facts_of(planned, sampler);
  if (planned.assumed.empty()) require_steps_fit(settings, sampler.total_steps());

  StepJob step(session, settings, out->device.target, planned.rows, sampler);
  out->work = step.work();
  settle_rate(out->device, session, planned.rows);
  const std::int64_t usual =
      plan::usual_micro_tokens(session.model->shape(), out->device.target.device, out->device.peak_flops);
  const std::int64_t most = step.largest(INT64_MAX).tokens;
  plan::Range range{.devices = device_counts(request, out->device),
                    .micro_tokens = micro_sizes(settings, out->data.longest, most, usual),
                    .checkpointing = all_grades(),
                    .offload = offloads_on(out->device.target.device)};
  if (settings.training.cuda_graphs) {  // which go with neither offloading nor weights that ranks share
    range.offload.resize(1);
    range.degree = 1;
  }
  out->usual_micro_tokens = usual;
  out->options = plan::all_options(step.job(), out->device.machine, range);
  out->decision = plan::decide(out->options, out->device.machine, out->work, usual);
  if (out->decision.best != nullptr) {
    const bool on_gpus = out->device.target.device == at::kCUDA;
    out->command = command_of(request, out->decision.best->choice, on_gpus, usual);
  }
  return out;
}

}  // namespace lorikeet::recipes
