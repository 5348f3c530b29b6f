#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timing.h"

namespace lorikeet::bench {

/// How a table names a matrix's shape.
inline std::string matrix(std::int64_t rows, std::int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

/// Norms, also of gated products, rotary, activations, softmax, AdamW, DoRA's columns and dropout, in bf16
/// for `tokens` rows.
std::vector<Case> bf16_kernels(std::int64_t tokens);
/// Low-rank terms that these kernels add, and their gradients, alike; none on a GPU without tensor cores.
std::vector<Case> low_rank_kernels(std::int64_t tokens);
/// Decoding of 4-bit and fp8 matrices to bf16, and encoding of `tokens` rows of bf16 as fp8.
std::vector<Case> quantized_kernels(std::int64_t tokens);
/// Mixtures of experts of Qwen3-30B-A3B's shape with equally many rows of `tokens`: what moves rows to
/// experts and back, and, on GPUs with tensor cores, products of all experts at once.
std::vector<Case> expert_kernels(std::int64_t tokens);
/// The state space of Granite 4 H (48 and 128 heads) and Nemotron-H over one sequence of `tokens`.
std::vector<Case> state_space_kernels(std::int64_t tokens);
/// A copy from device memory to device memory by the driver, of 1 GiB.
Case device_copy();

}  // namespace lorikeet::bench
