#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/head_layout.h"

namespace lorikeet::ops {

/// Rotates the query and key heads of qkv [rows, layout.width()], dense device memory, in place by the angles
/// whose cosines and sines are [rows, half] fp32, or back by them when `inverse` (rotary.h). 2 half <=
/// layout.head_dim. One launch; nothing where there are no elements. `stream` is a cudaStream_t. Throws Error
/// when the launch fails, and always in a build without CUDA.
void launch_rotary(CudaElement element, void* qkv, const float* cos, const float* sin, std::int64_t rows,
                   const HeadLayout& layout, std::int64_t half, bool inverse, void* stream);

/// Writes `heads` as one dense matrix `packed` [rows, layout.width()], queries and keys rotated back by the
/// angles; layout.head_dim is even. Otherwise as launch_rotary.
void launch_rotary_backward(CudaElement element, const HeadsOnDevice& heads, const float* cos,
                            const float* sin, std::int64_t rows, const HeadLayout& layout, std::int64_t half,
                            void* packed, void* stream);

}  // namespace lorikeet::ops
