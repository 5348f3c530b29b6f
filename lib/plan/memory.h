#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nn/model_shape.h"
#include "precision/policy.h"

namespace lorikeet::plan {

/// What the memory of a LoRA training step depends on.
struct MemoryInput {
  nn::ModelShape shape;
  precision::Policy policy;
  std::int64_t frozen_bytes = 0;        ///< of the base as it is held
  std::int64_t adapter_parameters = 0;  ///< of all A and B
  std::int64_t adapter_columns = 0;     ///< sum of the ranks over all adapted projections
  std::int64_t tokens = 0;              ///< of the largest micro-batch
  std::int64_t label_tokens = 0;        ///< of them, those with a label
  bool checkpointing = false;           ///< activations are recomputed layer by layer
  bool native_products = true;          ///< false: matrix products widen their operands to fp32 first
  std::int64_t head_chunk_rows = 0;     ///< rows of logits that the loss holds at once
};

/// Bytes by part, at the step's peak. docs/memory.md derives the formula and shows it beside measurements.
struct MemoryEstimate {
  std::int64_t weights = 0;      ///< frozen base
  std::int64_t adapter = 0;      ///< values, compute copy, gradients, AdamW moments
  std::int64_t activations = 0;  ///< kept from forward for backward
  std::int64_t working = 0;      ///< the larger of one layer's backward and one chunk of the loss
  std::int64_t runtime = 0;  ///< the math library's own: threads' buffers and code touched first in a step

  std::int64_t total() const { return weights + adapter + activations + working + runtime; }
  /// Rows of (part, bytes) in the order above.
  std::vector<std::pair<std::string, std::int64_t>> rows() const;
};

MemoryEstimate step_memory(const MemoryInput& input);

}  // namespace lorikeet::plan
