#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/quantized/parts.h"

namespace lorikeet::ops {

/// A fp8 matrix in device memory; see Float8Layout.
struct Float8Matrix {
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;
  std::int64_t cols = 0, block_rows = 0, block_cols = 0, scale_cols = 0;
};

/// The rows [first, first + rows) of each matrix of a stack as numbers, to `out` [rows, cols] there.
/// `matrix`: the first one. `stream` is a cudaStream_t. Throws Error when the launch fails, and always in a
/// build without CUDA.
void launch_decode_float8(const Float8Matrix& matrix, const QuantizedStack& stack, std::int64_t first,
                          std::int64_t rows, CudaElement element, void* out, void* stream);

/// Rows of x, `stride` elements apart, to codes [rows, cols] and a scale each (to_float8_rows): the largest
/// absolute value over 448, at least `least_scale`. As launch_decode_float8 otherwise.
void launch_encode_float8(CudaElement element, const void* x, std::int64_t rows, std::int64_t cols,
                          std::int64_t stride, float least_scale, std::uint8_t* codes, float* scales,
                          void* stream);

}  // namespace lorikeet::ops
