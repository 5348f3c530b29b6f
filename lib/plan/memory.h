#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/memory_saving.h"
#include "nn/causal_lm.h"
#include "ops/dry_run.h"
#include "peft/lora_config.h"
#include "plan/micro_size.h"
#include "precision/policy.h"

namespace lorikeet::plan {

/// What the memory of a LoRA training step depends on.
struct MemoryInput {
  const nn::CausalLMSpec* model = nullptr;
  peft::LoraConfig lora;
  precision::Policy policy;
  ops::DryTarget target;
  std::int64_t frozen_bytes = 0;  ///< of the base as the device holds it, beside what is fetched for a while
  MicroSize micro;                ///< the largest micro-batch
  config::MemorySaving saving;
  bool cuda_graphs = false;  ///< train::GraphedMicroSteps
};

/// Bytes by part at the moment of a step when most is held, beside what the process holds before the base is
/// read.
struct MemoryEstimate {
  std::int64_t weights = 0;         ///< frozen base
  std::int64_t adapter = 0;         ///< values, compute copy, gradients
  std::int64_t optimizer = 0;       ///< AdamW's moments
  std::int64_t activations = 0;     ///< what lives from one layer to the next
  std::int64_t logits = 0;          ///< the loss's scratch, a chunk of logits; 0 where the peak is elsewhere
  std::int64_t workspace = 0;       ///< a layer's scratch; with checkpointing also what is recomputed
  std::int64_t graphs = 0;          ///< what recorded micro-steps keep, with training.cuda_graphs
  std::int64_t fragmentation = 0;   ///< free memory that the allocator holds
  std::int64_t product_caches = 0;  ///< ops::kProductCacheRules', full: rows of many lengths have come by
  std::int64_t runtime = 0;         ///< the math libraries' own

  /// The most that a trained layer keeps for its backward, of all but the last where there are several; not a
  /// part of its own.
  std::int64_t activations_per_layer = 0;
  /// Of the host's memory, of a run on a GPU with `offload`: pinned blocks of whole powers of two. Not in the
  /// total. The frozen matrices, and the most that is there of what layers keep.
  std::int64_t host_weights = 0, host_activations = 0;
  std::int64_t moved_activations =
      0;                    ///< bytes that go to the host's memory, and come back, in a micro-batch
  std::int64_t tokens = 0;  ///< of that micro-batch

  /// What is there from the first step to the last.
  std::int64_t held() const { return weights + adapter + optimizer; }
  std::int64_t total() const {
    return held() + activations + logits + workspace + graphs + fragmentation + product_caches + runtime;
  }
  std::int64_t host_total() const { return host_weights + host_activations; }
  /// Rows of (part, bytes) in the order above.
  std::vector<std::pair<std::string, std::int64_t>> rows() const;
};

/// Runs training steps of the input's size with tensors that have no data (ops::DryRun) and gives the parts
/// at the peak. Takes milliseconds; nothing large is allocated.
MemoryEstimate step_memory(const MemoryInput& input);

}  // namespace lorikeet::plan
