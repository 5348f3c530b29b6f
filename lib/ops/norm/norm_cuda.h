#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// RMS norm and layer norm on a GPU (norm.h has the formulas), without libtorch. All pointers are device
// memory.
namespace lorikeet::ops {

/// Rows [tokens * heads] of `width` elements. A token's heads lie next to each other; tokens are `stride`
/// elements apart, which each tensor has of its own.
struct NormRows {
  std::int64_t tokens, heads, width;
};

/// The frozen parameters, [width]: fp32 where `is_fp32`, else of the rows' element type. The scale is weight
/// + offset.
struct NormScaleOnDevice {
  const void* weight;
  const void* bias;  ///< or nullptr
  bool is_fp32;
  float offset;
};

struct NormForwardOnDevice {
  const void* x;
  std::int64_t x_stride;
  const void* delta;  ///< dense like `sum`, or nullptr
  void* sum;          ///< x + delta, rounded; nullptr without delta
  NormScaleOnDevice scale;
  float eps;
  void* y;
  std::int64_t y_stride;
  float* mean;  ///< a row each; nullptr for RMS norm
  float* rstd;
};

struct NormBackwardOnDevice {
  const void* dy;
  std::int64_t dy_stride;
  const void* extra;  ///< added to the gradient, or nullptr
  std::int64_t extra_stride;
  const void* x;
  std::int64_t x_stride;
  NormScaleOnDevice scale;  ///< its bias is read for `again` alone
  const float* mean;        ///< nullptr for RMS norm
  const float* rstd;
  void* dx;  ///< may be dy, with its stride
  std::int64_t dx_stride;
  void* again;  ///< forward's result, dense, or nullptr
};

/// One launch each; nothing where there are no elements. `stream` is a cudaStream_t. They throw Error when
/// the launch fails, and always in a build without CUDA.
void launch_norm_forward(CudaElement element, const NormRows& rows, const NormForwardOnDevice& in,
                         void* stream);
void launch_norm_backward(CudaElement element, const NormRows& rows, const NormBackwardOnDevice& in,
                          void* stream);

}  // namespace lorikeet::ops
