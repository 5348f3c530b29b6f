#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// The gated norm on a GPU (gated_norm.h), without libtorch. All pointers are device memory, rows and the
// weight aligned to 16 bytes.
namespace lorikeet::ops {

struct GatedNormOnDevice {
  std::int64_t rows, heads, head_dim;
  const void* x;       ///< [rows, heads * head_dim], dense
  const void* z;       ///< of x's shape
  std::int64_t z_row;  ///< elements from one of its rows to the next
  const void* weight;  ///< [head_dim], frozen: fp32 where `is_fp32`, else of the rows' element type
  bool is_fp32;
  float eps;
};

/// Whether the kernels take heads of this width: whole accesses of 16 bytes, 32 at most.
constexpr bool gated_norm_kernel_fits(CudaElement element, std::int64_t head_dim) {
  const std::int64_t access = element == CudaElement::kF32 ? 4 : 8;
  return head_dim > 0 && head_dim % access == 0 && head_dim <= 32 * access;
}

/// One launch each; nothing where there are no elements. y: dense. `stream` is a cudaStream_t. They throw
/// Error when the launch fails, and always in a build without CUDA.
void launch_gated_norm(CudaElement element, const GatedNormOnDevice& in, void* y, void* stream);
/// Writes x's gradient over dy, dense, and z's into dz, rows `dz_row` elements apart, which may be z.
/// `again`, unless it is null, gets forward's y.
void launch_gated_norm_backward(CudaElement element, const GatedNormOnDevice& in, void* dy, void* dz,
                                std::int64_t dz_row, void* again, void* stream);

}  // namespace lorikeet::ops
