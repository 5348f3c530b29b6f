#include "ops/quantized/float8_cpu.h"

#include <c10/util/Half.h>

#include <bit>
#include <cmath>

#include "ops/quantized/float8.h"
#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

struct Fp16 {
  std::uint16_t bits;
};

using vector::store;
LORIKEET_INLINE void store(float value, Fp16& out) { out.bits = c10::Half(value).x; }

// `Rounded` is what numbers are rounded to before they are stored.
template <typename Rounded, typename T>
LORIKEET_INLINE void decode(const std::uint8_t* codes, std::int64_t count, float scale, T* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = float8_value(codes[i]) * scale;
    Rounded rounded{};
    store(value, rounded);
    if constexpr (std::is_same_v<T, float> && std::is_same_v<Rounded, Fp16>) {
      out[i] = static_cast<float>(c10::Half(rounded.bits, c10::Half::from_bits()));
    } else if constexpr (std::is_same_v<T, float>) {
      out[i] = vector::load(rounded);
    } else {
      out[i] = rounded.bits;
    }
  }
}

LORIKEET_VECTOR_CLONES
void to_floats(const std::uint8_t* codes, std::int64_t count, float scale, float* out) {
  decode<float>(codes, count, scale, out);
}
LORIKEET_VECTOR_CLONES
void to_wide_bf16(const std::uint8_t* codes, std::int64_t count, float scale, float* out) {
  decode<vector::Bf16>(codes, count, scale, out);
}
LORIKEET_VECTOR_CLONES
void to_bf16(const std::uint8_t* codes, std::int64_t count, float scale, std::uint16_t* out) {
  decode<vector::Bf16>(codes, count, scale, out);
}

LORIKEET_VECTOR_CLONES
std::uint32_t largest_magnitude(const float* values, std::int64_t count) {
  // Magnitudes are ordered as their bits are, infinity and NaN above all.
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

LORIKEET_VECTOR_CLONES
void encode(const float* values, std::int64_t count, float scale, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) codes[i] = float8_code(values[i] / scale);
}

}  // namespace

void decode_float8(const std::uint8_t* codes, std::int64_t count, float scale, Rounding rounding,
                   float* out) {
  switch (rounding) {
    case Rounding::kNone: return to_floats(codes, count, scale, out);
    case Rounding::kBF16: return to_wide_bf16(codes, count, scale, out);
    case Rounding::kF16: return decode<Fp16>(codes, count, scale, out);
  }
}

void decode_float8(const std::uint8_t* codes, std::int64_t count, float scale, Rounding rounding,
                   std::uint16_t* out) {
  if (rounding == Rounding::kF16) {
    decode<Fp16>(codes, count, scale, out);
  } else {
    to_bf16(codes, count, scale, out);
  }
}

float encode_float8(const float* values, std::int64_t count, std::uint8_t* codes) {
  const auto largest = std::bit_cast<float>(largest_magnitude(values, count));
  // A scale below the smallest normal number would be lost, and so is such a row.
  const float scale = largest / kFloat8Largest;
  const float used = std::isnormal(scale) ? scale : (std::isfinite(scale) ? 1.0F : scale);
  encode(values, count, used, codes);
  return used;
}

}  // namespace lorikeet::ops::cpu
