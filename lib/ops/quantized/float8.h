#pragma once

#include <cstdint>

// The arithmetic of one fp8 number (e4m3 without infinities), shared word for word by the CPU and the CUDA
// path.
#ifdef __CUDACC__
#define LORIKEET_FLOAT8_INLINE __host__ __device__ __forceinline__
#else
#define LORIKEET_FLOAT8_INLINE inline __attribute__((always_inline))
#endif

namespace lorikeet::ops {

/// The largest number.
constexpr float kFloat8Largest = 448.0F;
/// The codes of NaN have all bits but the sign.
constexpr std::uint8_t kFloat8Nan = 0x7F;

LORIKEET_FLOAT8_INLINE std::uint32_t float8_bits_of(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

LORIKEET_FLOAT8_INLINE float float8_float_of(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

/// The number of a code that isn't NaN's. Without branches and denormal numbers, which a CPU may take for 0.
LORIKEET_FLOAT8_INLINE float float8_value(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7FU;
  // Exponents are biased by 7 here, by 127 there.
  const float normal = float8_float_of((magnitude << 20) + (120U << 23));
  const float small = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-9F;
  const float value = magnitude < 8U ? small : normal;
  return (code & 0x80U) != 0U ? -value : value;
}

/// The code of the number nearest to a finite `value`, ties to even; beyond the largest that one's.
LORIKEET_FLOAT8_INLINE std::uint8_t float8_code(float value) {
  const std::uint32_t sign = float8_bits_of(value) >> 24 & 0x80U;
  const float magnitude = float8_float_of(float8_bits_of(value) & 0x7FFFFFFFU);
  const float bounded = magnitude > kFloat8Largest ? kFloat8Largest : magnitude;
  const std::uint32_t bits = float8_bits_of(bounded);
  // Three bits of the mantissa stay; a carry goes into the exponent.
  const std::uint32_t normal = ((bits + 0x7FFFFU + (bits >> 20 & 1U)) >> 20) - (120U << 3);
  // Below 2^-6 numbers are multiples of 2^-9, which is the last place of 2^14.
  const std::uint32_t small = float8_bits_of(bounded + 16384.0F) & 0xFFU;
  return static_cast<std::uint8_t>(sign | (bounded < 0x1p-6F ? small : normal));
}

}  // namespace lorikeet::ops
