#include "ops/quantized/float8_layout.h"

#include <algorithm>

namespace lorikeet::ops {
namespace {

constexpr std::int64_t kPartAlignment = 16, kWholeAlignment = 64;

std::int64_t whole_parts(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::int64_t aligned(std::int64_t bytes, std::int64_t to) { return whole_parts(bytes, to) * to; }

std::int64_t extent(std::int64_t block, std::int64_t all) {
  return std::max<std::int64_t>(block == 0 ? all : block, 1);
}

}  // namespace

Float8Layout::Float8Layout(std::int64_t rows, std::int64_t cols, const precision::Float8& quantization)
    : rows(rows),
      cols(cols),
      block_rows(extent(quantization.block_rows, rows)),
      block_cols(extent(quantization.block_cols, cols)),
      scale_rows(whole_parts(rows, block_rows)),
      scale_cols(whole_parts(cols, block_cols)),
      codes_bytes(rows * cols),
      scales_begin(aligned(codes_bytes, kPartAlignment)),
      bytes(aligned(scales_begin + scale_rows * scale_cols * static_cast<std::int64_t>(sizeof(float)),
                    kWholeAlignment)) {}

}  // namespace lorikeet::ops
