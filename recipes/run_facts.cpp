#include "recipes/run_facts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

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
  json.set("reference_ops", ops::reference_ops());
  json.set("seed", settings.training.seed);
  json.set("tokenizer", session.tokenizer->description());
  json.set("adapter_parameters", session.adapters ? session.adapters->store().numel() : std::int64_t{0});
  json.set("frozen_bytes", session.model->store().bytes());
  return json;
}

}  // namespace lorikeet::recipes
