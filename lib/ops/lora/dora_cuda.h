#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

namespace lorikeet::ops {

// Kernels of dora.h's columns, over dense device memory. `stream` is a cudaStream_t. Both throw Error when
// the launch fails, and always in a build without CUDA.

/// y = x * factors + bias by columns, for x and y [rows, cols] and fp32 factors [cols]; bias [cols] of x's
/// element type, or nullptr. One launch.
void launch_scale_columns(CudaElement element, const void* x, const float* factors, const void* bias,
                          std::int64_t rows, std::int64_t cols, void* y, void* stream);

/// Rows whose sums one block of launch_scale_columns_backward makes.
inline constexpr std::int64_t kScaleColumnsRows = 128;

/// dx = dy * factors, and the sums of dy * x over each run of kScaleColumnsRows rows: fp32 [runs, cols],
/// always in the same order. One launch.
void launch_scale_columns_backward(CudaElement element, const void* dy, const void* x, const float* factors,
                                   std::int64_t rows, std::int64_t cols, void* dx, float* sums, void* stream);

}  // namespace lorikeet::ops
