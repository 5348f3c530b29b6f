#include "recipes/run_facts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include "base/log.h"
#include "base/version.h"
#include "ops/reference_ops.h"
#include "recipes/source_fingerprint.h"

namespace lorikeet::recipes {

Json run_facts(const ModelSession& session, const config::Settings& settings,
               const std::vector<std::string>& devices, const plan::Strategy& strategy) {
  const auto precision = session.policy.rows();
  Json json;
  json.set("lorikeet_version", kVersion);
  json.set("code", source_fingerprint());
  json.set("libtorch_version", TORCH_VERSION);
  json.set("devices", Json::Array(devices.begin(), devices.end()));
  json.set("world_size", static_cast<std::int64_t>(devices.size()));
  json.set("strategy", strategy.name).set("shard_degree", strategy.degree);
  json.set("threads", at::get_num_threads());
  json.set("precision", Json::Object(precision.begin(), precision.end()));
  json.set("seed", settings.training.seed);
  json.set("tokenizer", session.tokenizer->description());
  json.set("adapter_parameters", session.adapters ? session.adapters->store().numel() : std::int64_t{0});
  json.set("frozen_bytes", session.model->store().bytes());
  return json;
}

Json reference_ops_fact(const Json& begun) {
  const bool now = ops::reference_ops();
  if (begun.is_null()) return now;
  if (!begun.is_bool() || begun.boolean() == now) return begun;
  log_warning(std::string("the run there goes on with ") +
              (now ? "the operators' references, and began with kernels"
                   : "kernels, and began with the operators' references") +
              " (LORIKEET_REFERENCE_OPS): its losses stay the same but for rounding, not to the bit");
  return "partly";
}

void add_progress(Json& facts, const train::RunState& state, bool stopped_early) {
  facts.set("steps", state.step);
  if (stopped_early)
    facts.set("early_stop",
              Json().set("step", state.step).set("evaluations_since_best", state.evaluations_since_best));
  facts.set("training_seconds", state.elapsed_seconds);
  if (state.best) facts.set("best_step", state.best->step).set("best_val_loss", state.best->val_loss);
}

}  // namespace lorikeet::recipes
