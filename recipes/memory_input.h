#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "config/settings.h"
#include "plan/memory.h"
#include "plan/micro_size.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {

/// What a step would run on: this process's device, or one that is only planned for.
struct MemoryTarget {
  plan::Kernels kernels;
  at::DeviceType device;
  std::int64_t threads;  ///< of the CPU's operators
};

/// Where products of the session's compute dtype run on `device`, with the threads of this process.
MemoryTarget memory_target(const precision::Policy& policy, at::DeviceType device);

/// Columns of the products x A^T: the sum of the ranks of a group's adapters. A fused module has one adapter.
struct AdapterColumns {
  std::array<std::int64_t, plan::kGroups>
      of_layer{};  ///< by plan::Group, of the first layer: layers are alike
  std::int64_t head = 0;
};
AdapterColumns adapter_columns(const nn::CausalLMSpec& spec, const peft::LoraAdapters& adapters);

/// What plan::step_memory needs to know of a run whose largest micro-batch is `micro`, where `degree` ranks
/// share one copy of the frozen weights. Nothing has to be allocated.
plan::MemoryInput memory_input(const ModelSession& session, const config::Settings& settings,
                               const plan::MicroSize& micro, int degree, const MemoryTarget& target);

}  // namespace lorikeet::recipes
