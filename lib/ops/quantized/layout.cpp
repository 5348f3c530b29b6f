#include "ops/quantized/layout.h"

namespace lorikeet::ops {
namespace {

constexpr std::int64_t kPartAlignment = 16, kWholeAlignment = 64;
constexpr std::int64_t kFloat = sizeof(float), kBookValues = 16, kNestedBookValues = 256;

std::int64_t whole_parts(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::int64_t aligned(std::int64_t bytes, std::int64_t to) { return whole_parts(bytes, to) * to; }

const float* floats(const std::uint8_t* bytes) { return reinterpret_cast<const float*>(bytes); }

}  // namespace

QuantizedLayout::QuantizedLayout(std::int64_t elements, const precision::FourBits& quantization)
    : elements(elements),
      blocks(whole_parts(elements, quantization.block)),
      nested_blocks(quantization.nested_block == 0 ? 0 : whole_parts(blocks, quantization.nested_block)),
      codes_bytes(whole_parts(elements, 2)) {
  const bool nested = quantization.nested_block != 0;
  std::int64_t end = 0;
  const auto part = [&end](std::int64_t bytes) {
    const std::int64_t begin = aligned(end, kPartAlignment);
    end = begin + bytes;
    return begin;
  };
  part(codes_bytes);
  scales_begin = part(nested ? blocks : blocks * kFloat);
  nested_scales_begin = part(nested_blocks * kFloat);
  nested_book_begin = part(nested ? kNestedBookValues * kFloat : 0);
  offset_begin = part(nested ? kFloat : 0);
  book_begin = part(kBookValues * kFloat);
  bytes = aligned(end, kWholeAlignment);
}

QuantizedParts parts_of(const QuantizedLayout& layout, const precision::FourBits& quantization,
                        const std::uint8_t* bytes) {
  QuantizedParts parts{.codes = bytes,
                       .scales = floats(bytes + layout.scales_begin),
                       .book = floats(bytes + layout.book_begin),
                       .block = quantization.block,
                       .nested_block = quantization.nested_block};
  if (quantization.nested_block != 0) {
    parts.scale_codes = bytes + layout.scales_begin;
    parts.scales = floats(bytes + layout.nested_scales_begin);
    parts.nested_book = floats(bytes + layout.nested_book_begin);
    parts.offset = floats(bytes + layout.offset_begin);
  }
  return parts;
}

}  // namespace lorikeet::ops
