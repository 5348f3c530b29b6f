#pragma once

#include <cstdint>

#include "ops/quantized/dequantize_cuda.h"

namespace lorikeet::ops {

/// A fp8 matrix in device memory; see Float8Layout.
struct Float8Matrix {
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;
  std::int64_t cols = 0, block_rows = 0, block_cols = 0, scale_cols = 0;
};

/// The rows [first, first + rows) as numbers, to `out` [rows, cols] there. `stream` is a cudaStream_t. Throws
/// Error when the launch fails, and always in a build without CUDA.
void launch_decode_float8(const Float8Matrix& matrix, std::int64_t first, std::int64_t rows,
                          DecodedElement element, void* out, void* stream);

}  // namespace lorikeet::ops
