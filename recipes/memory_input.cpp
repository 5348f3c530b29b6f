#include "recipes/memory_input.h"

#include <ATen/Parallel.h>

#include <set>
#include <string>

#include "ops/dtype.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "parallel/weight_gatherer.h"

namespace lorikeet::recipes {
namespace {

// Of the frozen base on one of `degree` ranks that share it, with the units that are whole at a time.
std::int64_t held_bytes(const ModelSession& session, int degree, at::DeviceType device) {
  const std::int64_t own = session.model->store().held_bytes(degree);
  if (degree == 1) return own;
  const parallel::GatherCost cost = parallel::gather_cost(*session.model, degree);
  // Gloo gathers into a buffer of its own first.
  return own + cost.buffer_bytes + (device == at::kCPU ? cost.largest_unit_bytes : 0);
}

}  // namespace

AdapterColumns adapter_columns(const nn::CausalLMSpec& spec, const peft::LoraAdapters& adapters) {
  std::set<std::string> adapted;
  for (const auto& module : adapters.modules()) adapted.insert(module.name);
  const auto columns_of = [&](const std::vector<nn::Module>& modules) {
    std::int64_t columns = 0;
    for (const nn::Module& module : modules)
      columns += adapted.contains(module.name) ? adapters.config().rank : 0;
    return columns;
  };
  const nn::DecoderLayerSpec& layer = spec.layers.at(0);
  AdapterColumns columns;
  const auto of_group = [&](plan::Group group) -> std::int64_t& {
    return columns.of_layer.at(static_cast<std::size_t>(group));
  };
  of_group(plan::Group::kQkv) = columns_of(layer.attention.qkv_modules());
  of_group(plan::Group::kOutput) = columns_of({layer.attention.output_module()});
  of_group(plan::Group::kGateUp) = columns_of(layer.mlp.gate_up_modules());
  of_group(plan::Group::kDown) = columns_of({layer.mlp.down_module()});
  columns.head = columns_of({{spec.head.name, spec.head.vocab_size}});
  return columns;
}

MemoryTarget memory_target(const precision::Policy& policy, at::DeviceType device) {
  const bool native = ops::multiplies_natively(ops::to_torch(policy.compute), at::Device(device));
  const plan::Kernels on_cpu = native ? plan::Kernels::kCpu : plan::Kernels::kCpuWidened;
  return {device == at::kCPU ? on_cpu : plan::Kernels::kCuda, device, at::get_num_threads()};
}

plan::MemoryInput memory_input(const ModelSession& session, const config::Settings& settings,
                               const plan::MicroSize& micro, int degree, const MemoryTarget& target) {
  const nn::ModelShape& shape = session.model->shape();
  const AdapterColumns columns = adapter_columns(session.model->spec(), *session.adapters);
  return {
      .shape = shape,
      .policy = session.policy,
      .kernels = target.kernels,
      .frozen_bytes = held_bytes(session, degree, target.device),
      .adapter_parameters = session.adapters->store().numel(),
      .group_columns = columns.of_layer,
      .head_columns = columns.head,
      .tokens = micro.tokens,
      .label_tokens = micro.label_tokens,
      .longest = micro.longest,
      .checkpointing = settings.training.activation_checkpointing == config::ActivationCheckpointing::kFull,
      .head_chunk_rows = ops::default_chunk_rows(shape.vocab_size, at::Device(target.device)),
      .threads = target.threads};
}

}  // namespace lorikeet::recipes
