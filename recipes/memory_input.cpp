#include "recipes/memory_input.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <set>
#include <string>

#include "ops/dtype.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "parallel/weight_gatherer.h"

namespace lorikeet::recipes {
namespace {

using plan::Group;

// The groups of a layer's matrices in the order in which blocks declare them: q, k, v, o, gate, up, down.
constexpr std::array kGroupOfMatrix = {Group::kQkv,    Group::kQkv,    Group::kQkv, Group::kOutput,
                                       Group::kGateUp, Group::kGateUp, Group::kDown};

struct AdapterColumns {
  std::array<std::int64_t, plan::kGroups> of_layer{};
  std::int64_t head = 0;
};

// Layers are alike: the first one tells.
AdapterColumns adapter_columns(const ModelSession& session) {
  const peft::LoraAdapters& adapters = *session.adapters;
  std::set<std::string> adapted;
  for (const auto& module : adapters.modules()) adapted.insert(module.name + ".weight");
  const auto& units = session.model->store().units();
  AdapterColumns columns;
  std::size_t matrix = 0;
  std::int64_t in_layer = 0;
  for (const nn::WeightSegment& segment : units.at(1)->segments()) {
    if (!segment.is_matrix()) continue;
    const Group group = kGroupOfMatrix.at(std::min(matrix++, kGroupOfMatrix.size() - 1));
    if (!adapted.contains(segment.name)) continue;
    columns.of_layer.at(static_cast<std::size_t>(group)) += adapters.config().rank;
    ++in_layer;
  }
  const bool of_head = std::ssize(adapters.modules()) > in_layer * session.model->shape().layers;
  columns.head = of_head ? adapters.config().rank : 0;
  return columns;
}

// Of the frozen base on one of `degree` ranks that share it, with the units that are whole at a time.
std::int64_t held_bytes(const ModelSession& session, int degree, at::DeviceType device) {
  const std::int64_t own = session.model->store().held_bytes(degree);
  if (degree == 1) return own;
  const parallel::GatherCost cost = parallel::gather_cost(*session.model, degree);
  // Gloo gathers into a buffer of its own first.
  return own + cost.buffer_bytes + (device == at::kCPU ? cost.largest_unit_bytes : 0);
}

}  // namespace

MemoryTarget memory_target(const precision::Policy& policy, at::DeviceType device) {
  const bool native = ops::multiplies_natively(ops::to_torch(policy.compute), at::Device(device));
  const plan::Kernels on_cpu = native ? plan::Kernels::kCpu : plan::Kernels::kCpuWidened;
  return {device == at::kCPU ? on_cpu : plan::Kernels::kCuda, device, at::get_num_threads()};
}

plan::MemoryInput memory_input(const ModelSession& session, const config::Settings& settings,
                               const plan::MicroSize& micro, int degree, const MemoryTarget& target) {
  const nn::ModelShape& shape = session.model->shape();
  const AdapterColumns columns = adapter_columns(session);
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
