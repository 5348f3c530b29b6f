#include "recipes/run_facts.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include "base/version.h"

namespace lorikeet::recipes {

Json run_facts(const ModelSession& session, const config::Settings& settings) {
  Json precision{Json::Object{}};
  for (const auto& [what, dtype] : session.policy.rows()) precision.set(what, dtype_name(dtype));
  Json json;
  json.set("lorikeet_version", kVersion);
  json.set("libtorch_version", TORCH_VERSION);
  json.set("device", device::describe(session.device, device::cuda_devices()));
  json.set("world_size", 1);
  json.set("threads", at::get_num_threads());
  json.set("precision", std::move(precision));
  json.set("seed", settings.training.seed);
  json.set("tokenizer", session.tokenizer->description());
  json.set("adapter_parameters", session.adapters ? session.adapters->store().numel() : std::int64_t{0});
  json.set("frozen_bytes", session.model->store().bytes());
  return json;
}

}  // namespace lorikeet::recipes
