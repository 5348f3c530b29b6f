#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nn/model_shape.h"
#include "precision/policy.h"

namespace lorikeet::plan {

/// Which operators a device runs: they differ in what they keep and in what they need meanwhile.
enum class Kernels {
  kCpu,         ///< our own, fused; products in bf16
  kCpuWidened,  ///< the same on a CPU without bf16 products, which widens their operands to fp32
  kCuda,        ///< norm, rotary and gate composed of ATen's kernels, which keep fp32 copies; flash attention
};

/// The groups of a decoder layer's projections, in the order of use.
enum class Group { kQkv, kOutput, kGateUp, kDown };
inline constexpr std::size_t kGroups = 4;

/// What the memory of a LoRA training step depends on.
struct MemoryInput {
  nn::ModelShape shape;
  precision::Policy policy;
  Kernels kernels = Kernels::kCpu;
  std::int64_t frozen_bytes = 0;        ///< of the base as it is held
  std::int64_t adapter_parameters = 0;  ///< of all A and B
  /// Of one layer: the sum of the ranks in each group; 0 where a group has no adapter.
  std::array<std::int64_t, kGroups> group_columns{};
  std::int64_t head_columns = 0;     ///< rank of the head's adapter, 0 without
  std::int64_t tokens = 0;           ///< of the largest micro-batch
  std::int64_t label_tokens = 0;     ///< of them, those with a label
  std::int64_t longest = 0;          ///< tokens of the longest row
  bool checkpointing = false;        ///< activations are recomputed layer by layer
  std::int64_t head_chunk_rows = 0;  ///< rows of logits that the loss holds at once
  std::int64_t threads = 1;          ///< that attention runs on; CPU
};

/// Bytes by part at the moment of a step when most is held, beside what the process holds before the base is
/// read.
struct MemoryEstimate {
  std::int64_t weights = 0;         ///< frozen base
  std::int64_t adapter = 0;         ///< values, compute copy, gradients
  std::int64_t optimizer = 0;       ///< AdamW's moments
  std::int64_t activations = 0;     ///< kept from forward for backward
  std::int64_t logits = 0;          ///< one chunk of the loss; 0 where the peak is elsewhere
  std::int64_t workspace = 0;       ///< results and gradients on their way through one layer or the loss
  std::int64_t fragmentation = 0;   ///< free memory that the allocator holds
  std::int64_t product_caches = 0;  ///< ops::kProductCacheRules', full: rows of many lengths have come by
  std::int64_t runtime = 0;         ///< the math libraries' own

  std::int64_t activations_per_layer = 0;  ///< what one layer keeps; not a part of its own

  /// What is there from the first step to the last.
  std::int64_t held() const { return weights + adapter + optimizer; }
  std::int64_t total() const {
    return held() + activations + logits + workspace + fragmentation + product_caches + runtime;
  }
  /// Rows of (part, bytes) in the order above.
  std::vector<std::pair<std::string, std::int64_t>> rows() const;
};

/// Follows the tensors of a step from operator to operator (docs/memory.md lists them) through the rules of
/// the allocator, and gives the parts at the peak.
MemoryEstimate step_memory(const MemoryInput& input);

}  // namespace lorikeet::plan
