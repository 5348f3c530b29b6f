#include "ops/quantized/dequantize_cpu.h"

#include <c10/util/Half.h>

#include <algorithm>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

float scale_of(const QuantizedParts& parts, std::int64_t block) {
  if (parts.scale_codes == nullptr) return parts.scales[block];
  const float scale = parts.nested_book[parts.scale_codes[block]] * parts.scales[block / parts.nested_block];
  return scale + *parts.offset;
}

float rounded(float value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNone: return value;
    case Rounding::kF16: return static_cast<float>(c10::Half(value));
    case Rounding::kBF16: break;
  }
  vector::Bf16 bits{};
  vector::store(value, bits);
  return vector::load(bits);
}

// A block has only 16 different numbers: they are rounded once, and looked up.
void fill_table(const QuantizedParts& parts, float scale, Rounding rounding, float* table) {
  for (int code = 0; code < 16; ++code) table[code] = rounded(parts.book[code] * scale, rounding);
}

void fill_table(const QuantizedParts& parts, float scale, Rounding rounding, std::uint16_t* table) {
  for (int code = 0; code < 16; ++code) {
    const float value = parts.book[code] * scale;
    if (rounding == Rounding::kF16) {
      table[code] = c10::Half(value).x;
    } else {
      vector::Bf16 bits{};
      vector::store(value, bits);
      table[code] = bits.bits;
    }
  }
}

template <typename T>
LORIKEET_INLINE void look_up_pairs(const std::uint8_t* codes, std::int64_t pairs, const T* table, T* out) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    out[2 * i] = table[codes[i] >> 4];
    out[2 * i + 1] = table[codes[i] & 15];
  }
}

LORIKEET_VECTOR_CLONES
void look_up(const std::uint8_t* codes, std::int64_t pairs, const float* table, float* out) {
  look_up_pairs(codes, pairs, table, out);
}

LORIKEET_VECTOR_CLONES
void look_up(const std::uint8_t* codes, std::int64_t pairs, const std::uint16_t* table, std::uint16_t* out) {
  look_up_pairs(codes, pairs, table, out);
}

template <typename T>
void decode(const QuantizedParts& parts, std::int64_t first, std::int64_t count, Rounding rounding, T* out) {
  T table[16];
  for (std::int64_t at = first, end = first + count; at < end;) {
    const std::int64_t block = at / parts.block;
    const std::int64_t stop = std::min(end, (block + 1) * parts.block);
    fill_table(parts, scale_of(parts, block), rounding, table);
    // Rows of an odd width begin in the middle of a byte.
    if (at % 2 != 0) *out++ = table[parts.codes[at++ / 2] & 15];
    const std::int64_t pairs = (stop - at) / 2;
    look_up(parts.codes + at / 2, pairs, table, out);
    out += 2 * pairs;
    at += 2 * pairs;
    if (at < stop) *out++ = table[parts.codes[at++ / 2] >> 4];
  }
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
