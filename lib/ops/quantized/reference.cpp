#include <ATen/ATen.h>

#include <algorithm>

#include "ops/quantized/dequantize.h"
#include "ops/take_rows.h"

namespace lorikeet::ops::reference {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;  // an even number: a byte holds two elements

at::Tensor floats(const at::Tensor& bytes, std::int64_t begin, std::int64_t count) {
  return bytes.narrow(0, begin, count * static_cast<std::int64_t>(sizeof(float))).view(at::kFloat);
}

at::Tensor pick(const at::Tensor& values, const at::Tensor& indices) {
  return take_rows(values.unsqueeze(1), indices).squeeze(1);
}

// The scales of blocks `indices` (int64), fp32.
at::Tensor scales_of(const at::Tensor& bytes, const QuantizedLayout& layout,
                     const precision::FourBits& quantization, const at::Tensor& indices) {
  if (quantization.nested_block == 0) return pick(floats(bytes, layout.scales_begin, layout.blocks), indices);
  const at::Tensor codes = pick(bytes.narrow(0, layout.scales_begin, layout.blocks), indices);
  const at::Tensor nested = pick(floats(bytes, layout.nested_scales_begin, layout.nested_blocks),
                                 indices.div(quantization.nested_block, "floor"));
  const at::Tensor book = floats(bytes, layout.nested_book_begin, 256);
  // Multiplied and added in two roundings, as the kernels do.
  return pick(book, codes.to(at::kLong)) * nested + floats(bytes, layout.offset_begin, 1);
}

// Elements [first, first + count), fp32.
at::Tensor decode(const at::Tensor& bytes, const QuantizedLayout& layout,
                  const precision::FourBits& quantization, std::int64_t first, std::int64_t count) {
  const std::int64_t byte = first / 2;
  const at::Tensor pairs = bytes.narrow(0, byte, (first + count + 1) / 2 - byte).to(at::kLong).unsqueeze(1);
  const at::Tensor codes =
      at::cat({pairs.div(16, "floor"), pairs.bitwise_and(15)}, 1).flatten().narrow(0, first % 2, count);
  const at::Tensor blocks =
      at::arange(first, first + count, pairs.options()).div(quantization.block, "floor");
  return pick(floats(bytes, layout.book_begin, 16), codes) * scales_of(bytes, layout, quantization, blocks);
}

}  // namespace

void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout,
                const precision::FourBits& quantization, std::int64_t first, at::ScalarType rounded,
                const at::Tensor& out) {
  const at::Tensor flat = out.view({-1});
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kChunkElements) {
    const std::int64_t count = std::min(kChunkElements, flat.numel() - begin);
    flat.narrow(0, begin, count).copy_(decode(bytes, layout, quantization, first + begin, count).to(rounded));
  }
}

}  // namespace lorikeet::ops::reference
