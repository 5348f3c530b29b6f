#pragma once

#include <cstdint>

#include "precision/quantization.h"

namespace lorikeet::ops {

/// Where the parts of a fp8 matrix lie in its bytes:
///
///   codes    a byte an element, row after row
///   scales   fp32 [scale_rows, scale_cols], one for each block
///
/// Scales start at a multiple of 16 bytes, and the whole is one of 64.
struct Float8Layout {
  Float8Layout(std::int64_t rows, std::int64_t cols, const precision::Float8& quantization);

  std::int64_t rows, cols;
  std::int64_t block_rows, block_cols;  ///< at least 1 each
  std::int64_t scale_rows, scale_cols;
  std::int64_t codes_bytes, scales_begin, bytes;
};

}  // namespace lorikeet::ops
