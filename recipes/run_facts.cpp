#include "recipes/run_facts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include "base/version.h"
#include "ops/dtype.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "parallel/weight_gatherer.h"
#include "recipes/source_fingerprint.h"

namespace lorikeet::recipes {

Json run_facts(const ModelSession& session, const config::Settings& settings,
               const std::vector<std::string>& devices, const plan::Strategy& strategy) {
  Json precision{Json::Object{}};
  for (const auto& [what, how] : session.policy.rows()) precision.set(what, how);
  Json json;
  json.set("lorikeet_version", kVersion);
  json.set("code", source_fingerprint());
  json.set("libtorch_version", TORCH_VERSION);
  Json::Array each;
  for (const std::string& device : devices) each.emplace_back(device);
  json.set("devices", Json(std::move(each)));
  json.set("world_size", static_cast<std::int64_t>(devices.size()));
  json.set("strategy", strategy.name).set("shard_degree", strategy.degree);
  json.set("threads", at::get_num_threads());
  json.set("precision", std::move(precision));
  json.set("seed", settings.training.seed);
  json.set("tokenizer", session.tokenizer->description());
  json.set("adapter_parameters", session.adapters ? session.adapters->store().numel() : std::int64_t{0});
  json.set("frozen_bytes", session.model->store().bytes());
  return json;
}

plan::MemoryEstimate expected_memory(const ModelSession& session, const config::Settings& settings,
                                     const plan::MicroSize& micro, int degree) {
  const peft::LoraAdapters& adapters = *session.adapters;
  const at::Device device = session.torch_device();
  const nn::ModelShape& shape = session.model->shape();
  std::int64_t frozen_bytes = session.model->store().held_bytes(degree);
  if (degree > 1) {
    const parallel::GatherCost cost = parallel::gather_cost(*session.model, degree);
    // Gloo gathers into a buffer of its own first.
    frozen_bytes += cost.buffer_bytes + (device.is_cuda() ? 0 : cost.largest_unit_bytes);
  }
  return plan::step_memory(
      {.shape = shape,
       .policy = session.policy,
       .frozen_bytes = frozen_bytes,
       .adapter_parameters = adapters.store().numel(),
       .adapter_columns = adapters.config().rank * std::ssize(adapters.modules()),
       .tokens = micro.tokens,
       .label_tokens = micro.label_tokens,
       .checkpointing = settings.training.activation_checkpointing == config::ActivationCheckpointing::kFull,
       .native_products = ops::multiplies_natively(ops::to_torch(session.policy.compute), device),
       .head_chunk_rows = ops::default_chunk_rows(shape.vocab_size, device)});
}

}  // namespace lorikeet::recipes
