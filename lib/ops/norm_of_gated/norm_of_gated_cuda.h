#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// The norm of what a gate was applied to on a GPU (norm_of_gated.h), without libtorch. All pointers are
// device memory, rows and the weight aligned to 16 bytes.
namespace lorikeet::ops {

struct NormOfGatedOnDevice {
  std::int64_t rows, groups;
  std::int64_t width;  ///< of a group
  const void* x;       ///< [rows, groups * width], dense
  const void* z;       ///< of x's shape
  std::int64_t z_row;  ///< elements from one of its rows to the next
  const void* weight;  ///< [groups * width], frozen: fp32 where `is_fp32`, else of the rows' element type
  bool is_fp32;
  float eps;
};

/// Whether the kernels take groups of this width: whole accesses of 16 bytes.
constexpr bool norm_of_gated_kernel_fits(CudaElement element, std::int64_t width) {
  return width > 0 && width % (element == CudaElement::kF32 ? 4 : 8) == 0;
}

/// One launch each; nothing where there are no elements. y: dense. `stream` is a cudaStream_t. They throw
/// Error when the launch fails, and always in a build without CUDA.
void launch_norm_of_gated(CudaElement element, const NormOfGatedOnDevice& in, void* y, void* stream);
/// Writes x's gradient over dy, dense, and z's into dz, rows `dz_row` elements apart, which may be z.
/// `again`, unless it is null, gets forward's y.
void launch_norm_of_gated_backward(CudaElement element, const NormOfGatedOnDevice& in, void* dy, void* dz,
                                   std::int64_t dz_row, void* again, void* stream);

}  // namespace lorikeet::ops
