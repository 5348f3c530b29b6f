// Low-rank terms that kernels add to what they read anyway, and their gradients.
#include <cstdint>

#include "kernels.h"
#include "ops/activation/gated_terms_cuda.h"
#include "ops/lora/low_rank_split.h"
#include "ops/norm/norm_terms_cuda.h"
#include "ops/rotary/rotary_terms_cuda.h"

namespace lorikeet::bench {
namespace {

using ops::HeadLayout;

constexpr auto kElement = ops::CudaElement::kBF16;
constexpr std::int64_t kBF16 = 2, kFP32 = 4;  // bytes
constexpr Normal kNearOne{1.0F, 0.1F};

// A low-rank term of [tokens, width] numbers, whose left operand has `rank` of `left_row` columns.
ops::LowRankOnDevice term_on_device(DeviceMemory& memory, const void* left, std::int64_t left_row,
                                    std::int64_t width, std::int64_t rank) {
  return {.left = left,
          .left_row = left_row,
          .right = memory.bf16(width * rank),
          .rank = static_cast<int>(rank),
          .scale = 2};
}

// The norm of a residual with a low-rank term of its delta.
void add_norm_with_term(std::vector<Case>& to, std::int64_t tokens, std::int64_t width, std::int64_t rank) {
  to.push_back({.kernel = "add_norm with term forward",
                .shape = matrix(tokens, width),
                .bytes = (4 * tokens * width + (tokens + width) * rank + width) * kBF16 + tokens * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const ops::NormRows rows{.tokens = tokens, .heads = 1, .width = width};
                  const std::int64_t count = tokens * width;
                  const ops::NormForwardOnDevice in{.x = memory.bf16(count),
                                                    .x_stride = width,
                                                    .delta = memory.bf16(count),
                                                    .sum = memory.bf16(count),
                                                    .scale = {.weight = memory.bf16(width, kNearOne),
                                                              .bias = nullptr,
                                                              .is_fp32 = false,
                                                              .offset = 0},
                                                    .eps = 1e-6F,
                                                    .y = memory.bf16(count),
                                                    .y_stride = width,
                                                    .mean = nullptr,
                                                    .rstd = memory.fp32(tokens)};
                  const auto term = term_on_device(memory, memory.bf16(tokens * rank), rank, width, rank);
                  return [=](cudaStream_t stream) {
                    ops::launch_norm_forward(kElement, rows, in, term, stream);
                  };
                }});
}

// Rotary with low-rank terms of queries, keys and values.
void add_rotary_with_terms(std::vector<Case>& to, std::int64_t tokens, const HeadLayout& layout,
                           std::int64_t rank) {
  const std::int64_t half = layout.head_dim / 2, kv = layout.kv_heads * layout.head_dim;
  to.push_back({.kernel = "rotary with terms forward",
                .shape = matrix(tokens, layout.width()),
                .bytes = (2 * tokens * layout.width() + (3 * tokens + layout.width()) * rank) * kBF16 +
                         2 * tokens * half * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  void* const qkv = memory.bf16(tokens * layout.width());
                  const float* const cos = memory.fp32(tokens * half, {0.7F, 0.01F});
                  const float* const sin = memory.fp32(tokens * half, {0.7F, 0.01F});
                  const auto* const left = static_cast<const std::uint16_t*>(memory.bf16(tokens * 3 * rank));
                  const ops::HeadTerms terms{
                      .q = term_on_device(memory, left, 3 * rank, layout.k_begin(), rank),
                      .k = term_on_device(memory, left + rank, 3 * rank, kv, rank),
                      .v = term_on_device(memory, left + 2 * rank, 3 * rank, kv, rank)};
                  return [=](cudaStream_t stream) {
                    ops::launch_rotary(kElement, qkv, cos, sin, tokens, layout, terms, stream);
                  };
                }});
}

// The gated activation with low-rank terms of gate and up, and of its gradient.
void add_gated_terms(std::vector<Case>& to, std::int64_t tokens, std::int64_t width, std::int64_t rank) {
  const std::int64_t count = tokens * width, of_up = 2 * (tokens + width) * rank,
                     of_dy = (tokens + width) * rank;
  const auto terms = [=](DeviceMemory& memory) {
    const std::int64_t row = 2 * rank;
    const auto* const left = static_cast<const std::uint16_t*>(memory.bf16(tokens * row));
    return ops::GatedTerms{.gate = term_on_device(memory, left, row, width, rank),
                           .up = term_on_device(memory, left + rank, row, width, rank)};
  };
  to.push_back({.kernel = "gated activation with terms forward",
                .shape = matrix(tokens, width),
                .bytes = (3 * count + of_up) * kBF16,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const void* const gate_up = memory.bf16(2 * count);
                  void* const out = memory.bf16(count);
                  const ops::GatedTerms added = terms(memory);
                  return [=](cudaStream_t stream) {
                    ops::launch_gated_forward(kElement, ops::Activation::kSilu, gate_up, added, tokens, width,
                                              out, stream);
                  };
                }});
  to.push_back({.kernel = "gated activation with terms backward with product",
                .shape = matrix(tokens, width),
                .bytes = (6 * count + of_up + of_dy) * kBF16,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const void* const dy = memory.bf16(count);
                  void* const gate_up = memory.bf16(2 * count);
                  void* const product = memory.bf16(count);
                  const ops::GatedTerms added = terms(memory);
                  const ops::LowRankOnDevice of_gradient =
                      term_on_device(memory, memory.bf16(tokens * rank), rank, width, rank);
                  return [=](cudaStream_t stream) {
                    ops::launch_gated_backward(kElement, ops::Activation::kSilu, dy, of_gradient, added,
                                               tokens, width, gate_up, product, stream);
                  };
                }});
  // Partial sums aren't counted.
  to.push_back({.kernel = "gated activation with terms backward with gradient of A",
                .shape = matrix(tokens, width),
                .bytes = (5 * count + of_up + of_dy) * kBF16 + 2 * width * rank * kFP32,
                .make = [=](DeviceMemory& memory) -> Launch {
                  const void* const dy = memory.bf16(count);
                  void* const gate_up = memory.bf16(2 * count);
                  const ops::GatedTerms added = terms(memory);
                  const ops::LowRankOnDevice of_gradient =
                      term_on_device(memory, memory.bf16(tokens * rank), rank, width, rank);
                  float* const partial = memory.fp32(ops::gated_partial_sums(tokens, width) * width * rank);
                  float* const gradient = memory.fp32(width * rank);
                  return [=](cudaStream_t stream) {
                    ops::launch_gated_backward_and_sum(kElement, ops::Activation::kSilu, dy, of_gradient,
                                                       added, tokens, width, gate_up, partial, gradient,
                                                       stream);
                  };
                }});
}

// Of one projection with `columns` columns.
void add_low_rank_gradients(std::vector<Case>& to, std::int64_t tokens, std::int64_t columns,
                            std::int64_t rank) {
  to.push_back({.kernel = "low-rank gradients",
                .shape = matrix(tokens, columns),
                .bytes = tokens * (columns + 2 * rank) * kBF16 + columns * rank * (kBF16 + 2 * kFP32),
                .make = [=](DeviceMemory& memory) -> Launch {
                  ops::LowRankGradients in{.projections = 1,
                                           .begin = {},
                                           .width = {columns},
                                           .tokens = tokens,
                                           .rank = rank,
                                           .dy = memory.bf16(tokens * columns),
                                           .dy_row = columns,
                                           .u = memory.bf16(tokens * rank),
                                           .b = memory.bf16(columns * rank),
                                           .du = memory.bf16(tokens * rank),
                                           .grad_b = memory.fp32(columns * rank),
                                           .scale = 1};
                  float* const scratch = memory.fp32(ops::low_rank_gradients_scratch(in));
                  return [=](cudaStream_t stream) {
                    ops::launch_low_rank_gradients(kElement, in, scratch, stream);
                  };
                }});
}

}  // namespace

std::vector<Case> low_rank_kernels(std::int64_t tokens) {
  constexpr std::int64_t kRank = 16;
  constexpr HeadLayout kLlama{32, 8, 128};
  std::vector<Case> cases;
  if (!ops::has_tensor_core_kernels(capability())) return cases;
  for (const std::int64_t width : {1024, 2048, 2560, 4096, 5120, 8192})
    add_norm_with_term(cases, tokens, width, kRank);
  add_rotary_with_terms(cases, tokens, kLlama, kRank);
  for (const std::int64_t width : {3072, 9728, 14336}) add_gated_terms(cases, tokens, width, kRank);
  for (const std::int64_t columns : {1024, 4096, 14336, 28672})
    add_low_rank_gradients(cases, tokens, columns, kRank);
  return cases;
}

}  // namespace lorikeet::bench
