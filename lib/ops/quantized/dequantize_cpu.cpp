#include "ops/quantized/dequantize_cpu.h"

#include <algorithm>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

// Blocks whose scales are brought to fp32 at a time.
constexpr std::int64_t kStrip = 256;

LORIKEET_VECTOR_CLONES
void scale_codes(const std::uint8_t* codes, std::int64_t count, const float* book, float scale, float offset,
                 float* scales) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = book[codes[i]] * scale;
    scales[i] = value + offset;
  }
}

// The scales of the blocks [first, first + count), into `buffer` unless they are fp32 already.
const float* scales_of(const QuantizedParts& parts, std::int64_t first, std::int64_t count, float* buffer) {
  if (parts.scale_codes == nullptr) return parts.scales + first;
  for (std::int64_t at = first, end = first + count; at < end;) {
    const std::int64_t group = at / parts.nested_block;
    const std::int64_t stop = std::min(end, (group + 1) * parts.nested_block);
    scale_codes(parts.scale_codes + at, stop - at, parts.nested_book, parts.scales[group], *parts.offset,
                buffer + (at - first));
    at = stop;
  }
  return buffer;
}

// [first, end) lies in one block; rows of an odd width begin in the middle of a byte.
template <typename T>
T* decode_part(const QuantizedParts& parts, std::int64_t first, std::int64_t end, Rounding rounding, T* out) {
  float scale = 0;
  T table[16];
  fill_table(parts.book, *scales_of(parts, first / parts.block, 1, &scale), rounding, table);
  for (std::int64_t at = first; at < end; ++at) {
    const std::uint8_t pair = parts.codes[at / 2];
    *out++ = table[at % 2 == 0 ? pair >> 4 : pair & 15];
  }
  return out;
}

template <typename T>
void decode(const QuantizedParts& parts, std::int64_t first, std::int64_t count, Rounding rounding, T* out) {
  const std::int64_t end = first + count, block = parts.block;
  const std::int64_t begin_whole = std::min(end, (first + block - 1) / block * block);
  if (first < begin_whole) out = decode_part(parts, first, begin_whole, rounding, out);
  float buffer[kStrip];
  const Lookup lookup = best_lookup();
  const std::int64_t whole = end / block;
  for (std::int64_t at = begin_whole / block; at < whole; at += kStrip) {
    const std::int64_t blocks = std::min(kStrip, whole - at);
    expand_blocks({.codes = parts.codes + at * block / 2,
                   .scales = scales_of(parts, at, blocks, buffer),
                   .book = parts.book,
                   .blocks = blocks,
                   .pairs = block / 2},
                  rounding, lookup, out);
    out += blocks * block;
  }
  const std::int64_t begin_rest = std::max(begin_whole, whole * block);
  if (begin_rest < end) decode_part(parts, begin_rest, end, rounding, out);
}

}  // namespace

void dequantize(const QuantizedParts& parts, std::int64_t first, std::int64_t count, Rounding rounding,
                float* out) {
  decode(parts, first, count, rounding, out);
}

void dequantize(const QuantizedParts& parts, std::int64_t first, std::int64_t count, Rounding rounding,
                std::uint16_t* out) {
  decode(parts, first, count, rounding, out);
}

}  // namespace lorikeet::ops::cpu
