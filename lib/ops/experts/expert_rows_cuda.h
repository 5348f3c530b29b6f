#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// Rows between tokens and experts on a GPU (routing.h), without libtorch. All pointers are device memory;
// rows are dense and begin at multiples of 16 bytes.
namespace lorikeet::ops {

struct ExpertRowsOnDevice {
  std::int64_t tokens, width;
  std::int64_t per_token;      ///< k, rows of a token
  const std::int64_t* places;  ///< [tokens, k]: each token's rows
  const float* weights;        ///< [tokens, k], or nullptr: all are 1
};

/// Whether the kernels take rows of this width: whole accesses of 16 bytes.
constexpr bool expert_row_kernels_fit(CudaElement element, std::int64_t width) {
  return width % (element == CudaElement::kF32 ? 4 : 8) == 0;
}

/// rows [tokens * k, width] out of x [tokens, width], which is read once; weighted in fp32, rounded once.
void launch_spread_rows(CudaElement element, const ExpertRowsOnDevice& in, const void* x, void* rows,
                        void* stream);

/// out [tokens, width]: for each token the sum of its rows of `rows` [tokens * k, width], in fp32 in the
/// order of its experts, rounded once.
void launch_combine_rows(CudaElement element, const ExpertRowsOnDevice& in, const void* rows, void* out,
                         void* stream);

/// out [rows], fp32: the inner products of the rows of a and b [rows, width], in an order that depends on the
/// width alone.
void launch_row_products(CudaElement element, std::int64_t rows, std::int64_t width, const void* a,
                         const void* b, float* out, void* stream);

// Each is one launch, or none where there are no elements.
// `stream` is a cudaStream_t. They throw Error when the launch fails, and always in a build without CUDA.

}  // namespace lorikeet::ops
