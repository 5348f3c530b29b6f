// Mixtures of experts: rows between tokens and experts, and the products of all experts' rows in one launch.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels.h"
#include "ops/experts/expert_rows_cuda.h"
#include "ops/experts/grouped_products_cuda.h"
#include "ops/low_rank_on_device.h"

namespace lorikeet::bench {
namespace {

constexpr auto kElement = ops::CudaElement::kBF16;
constexpr std::int64_t kBF16 = 2, kFP32 = 4, kInt64 = 8;  // bytes
// Qwen3-30B-A3B's.
constexpr std::int64_t kHidden = 2048, kIntermediate = 768, kExperts = 128, kPerToken = 8, kRank = 16;

// Experts with equally many rows.
ops::ExpertsOnDevice experts_of(DeviceMemory& memory, std::int64_t rows, bool transposed) {
  std::vector<std::int64_t> ends;
  for (std::int64_t e = 1; e <= kExperts; ++e) ends.push_back(rows * e / kExperts);
  std::int64_t* const on_device = memory.integers(kExperts, 1);
  check(
      cudaMemcpy(on_device, ends.data(), static_cast<std::size_t>(kExperts * kInt64), cudaMemcpyHostToDevice),
      "cudaMemcpy");
  return {.rows = rows, .ends = on_device, .begin = 0, .end = kExperts, .transposed = transposed};
}

// `transposed`: of a gradient of the input. `terms`: with a low-rank term.
Case product(const std::string& name, std::int64_t rows, std::int64_t width, std::int64_t inner,
             bool transposed, bool term) {
  return {
      .kernel = name,
      .shape =
          std::to_string(kExperts) + " times " + matrix(rows / kExperts, inner) + " " + matrix(inner, width),
      .bytes =
          (rows * (inner + width + (term ? kRank : 0)) + kExperts * width * (inner + (term ? kRank : 0))) *
          kBF16,
      .make = [=](DeviceMemory& memory) -> Launch {
        const auto operands = [&](std::int64_t of_inner) {
          return ops::GroupedOperands{.left = memory.bf16(rows * of_inner),
                                      .left_row = of_inner,
                                      .right = memory.bf16(kExperts * width * of_inner),
                                      .right_row = transposed ? width : of_inner,
                                      .right_expert = width * of_inner,
                                      .inner = of_inner,
                                      .begin = 0,
                                      .end = width};
        };
        ops::GroupedProduct product{.operands = operands(inner)};
        if (term) {
          product.terms[0] = operands(kRank);
          product.term_count = 1;
        }
        product.out = memory.bf16(rows * width);
        product.out_row = width;
        const ops::ExpertsOnDevice experts = experts_of(memory, rows, transposed);
        return [=](cudaStream_t stream) { ops::launch_grouped_product(kElement, experts, product, stream); };
      }};
}

Case sums(const std::string& name, std::int64_t rows, std::int64_t width) {
  return {.kernel = name,
          .shape = std::to_string(kExperts) + " times " + matrix(width, rows / kExperts) + " " +
                   matrix(rows / kExperts, kRank),
          .bytes = rows * (width + kRank) * kBF16 + 2 * kExperts * width * kRank * kFP32,
          .make = [=](DeviceMemory& memory) -> Launch {
            const ops::GroupedSums sums{.left = memory.bf16(rows * width),
                                        .right = memory.bf16(rows * kRank),
                                        .left_row = width,
                                        .left_width = width,
                                        .right_row = kRank,
                                        .right_width = kRank,
                                        .out = memory.fp32(kExperts * width * kRank),
                                        .out_expert = width * kRank};
            const ops::ExpertsOnDevice experts = experts_of(memory, rows, false);
            return [=](cudaStream_t stream) { ops::launch_grouped_sums(kElement, experts, sums, stream); };
          }};
}

// Each token's rows at places of their own, far apart. Weights are the router's.
ops::ExpertRowsOnDevice rows_of(DeviceMemory& memory, std::int64_t tokens) {
  std::vector<std::int64_t> places;
  for (std::int64_t row = 0; row < tokens * kPerToken; ++row)
    places.push_back(row % kPerToken * tokens + row / kPerToken);
  std::int64_t* const on_device = memory.integers(tokens * kPerToken, 1);
  check(cudaMemcpy(on_device, places.data(), places.size() * kInt64, cudaMemcpyHostToDevice), "cudaMemcpy");
  return {.tokens = tokens,
          .width = kHidden,
          .per_token = kPerToken,
          .places = on_device,
          .weights = memory.fp32(tokens * kPerToken)};
}

// `spread`: to the experts, else back.
Case moved_rows(const std::string& name, std::int64_t tokens, bool spread) {
  return {.kernel = name,
          .shape = std::to_string(kPerToken) + " of " + matrix(tokens, kHidden),
          .bytes = tokens * ((kPerToken + 1) * kHidden * kBF16 + kPerToken * (kInt64 + kFP32)),
          .make = [=](DeviceMemory& memory) -> Launch {
            const ops::ExpertRowsOnDevice in = rows_of(memory, tokens);
            void* const of_tokens = memory.bf16(tokens * kHidden);
            void* const of_experts = memory.bf16(tokens * kPerToken * kHidden);
            return [=](cudaStream_t stream) {
              if (spread) {
                ops::launch_spread_rows(kElement, in, of_tokens, of_experts, stream);
              } else {
                ops::launch_combine_rows(kElement, in, of_experts, of_tokens, stream);
              }
            };
          }};
}

Case products_of_rows(std::int64_t rows) {
  return {.kernel = "products of experts' rows",
          .shape = matrix(rows, kIntermediate),
          .bytes = rows * (2 * kIntermediate * kBF16 + kFP32),
          .make = [=](DeviceMemory& memory) -> Launch {
            const void* const a = memory.bf16(rows * kIntermediate);
            const void* const b = memory.bf16(rows * kIntermediate);
            float* const out = memory.fp32(rows);
            return [=](cudaStream_t stream) {
              ops::launch_row_products(kElement, rows, kIntermediate, a, b, out, stream);
            };
          }};
}

}  // namespace

std::vector<Case> expert_kernels(std::int64_t tokens) {
  const std::int64_t rows = tokens * kPerToken;
  std::vector<Case> cases = {moved_rows("rows to experts", tokens, /*spread=*/true),
                             moved_rows("rows from experts", tokens, /*spread=*/false),
                             products_of_rows(rows)};
  if (!ops::has_tensor_core_kernels(capability())) return cases;
  cases.push_back(product("experts' gate and up", rows, 2 * kIntermediate, kHidden, false, false));
  cases.push_back(product("experts' gate and up, back", rows, kHidden, 2 * kIntermediate, true, false));
  cases.push_back(product("experts' down", rows, kHidden, kIntermediate, false, false));
  cases.push_back(product("experts' down with a term", rows, kHidden, kIntermediate, false, true));
  cases.push_back(product("experts' x A^T", rows, 2 * kRank, kHidden, false, false));
  cases.push_back(sums("gradients of experts' B", rows, kHidden));
  return cases;
}

}  // namespace lorikeet::bench
