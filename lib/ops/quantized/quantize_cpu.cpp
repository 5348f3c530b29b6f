#include "ops/quantized/quantize_cpu.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "ops/vector.h"

namespace lorikeet::ops::cpu {
namespace {

// Keeps the inverse of a block of zeros finite.
constexpr float kLeastScale = 1e-38F;
constexpr std::int64_t kChunk = 64;  // numbers at a time, even
constexpr std::int64_t kTableSize = 65536;

LORIKEET_INLINE float largest(const float* values, std::int64_t count) {
  // Magnitudes are ordered as their bits are, infinity and NaN above all: a NaN isn't lost, as it would be
  // between floats.
  const auto magnitude = [&](std::int64_t i) {
    return std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
  };
  std::uint32_t lanes[vector::kLanes] = {};
  std::int64_t i = 0;
  for (; i + vector::kLanes <= count; i += vector::kLanes) {
    for (std::int64_t lane = 0; lane < vector::kLanes; ++lane)
      lanes[lane] = magnitude(i + lane) > lanes[lane] ? magnitude(i + lane) : lanes[lane];
  }
  std::uint32_t result = 0;
  for (; i < count; ++i) result = magnitude(i) > result ? magnitude(i) : result;
  for (const std::uint32_t lane : lanes) result = lane > result ? lane : result;
  return std::bit_cast<float>(result);
}

// The number of bounds below each value, which is its code.
LORIKEET_INLINE void count_bounds(const float* scaled, const float* bounds, std::int32_t* codes) {
  for (std::int64_t i = 0; i < kChunk; ++i) {
    std::int32_t below = 0;
    for (std::int64_t b = 0; b < 15; ++b) below += bounds[b] < scaled[i] ? 1 : 0;
    codes[i] = below;
  }
}

LORIKEET_VECTOR_CLONES
float quantize_values(const float* values, std::int64_t count, bool whole, const float* bounds,
                      std::uint8_t* codes) {
  const float scale = largest(values, count);
  const float divisor = scale < kLeastScale ? kLeastScale : scale;
  const float inverse = 1.0F / divisor;
  float scaled[kChunk];
  std::int32_t found[kChunk];
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    const std::int64_t filled = count - begin < kChunk ? count - begin : kChunk;
    for (std::int64_t i = 0; i < filled; ++i) {
      const float value = whole ? values[begin + i] * inverse : values[begin + i] / divisor;
      scaled[i] = value < -1.0F ? -1.0F : (value > 1.0F ? 1.0F : value);
    }
    for (std::int64_t i = filled; i < kChunk; ++i) scaled[i] = 0.0F;
    count_bounds(scaled, bounds, found);
    std::uint8_t* out = codes + begin / 2;
    for (std::int64_t i = 0; i < (filled + 1) / 2; ++i)
      out[i] = static_cast<std::uint8_t>(found[2 * i] << 4 | found[2 * i + 1]);
  }
  return whole ? scale : divisor;
}

// By the place of a number in [-1, 1], in steps of 2 / 65535: the nearest value's code.
std::vector<std::uint8_t> make_table() {
  const LargeBook& book = dynamic_book();
  std::vector<std::uint8_t> table(kTableSize);
  std::size_t code = 0;
  for (std::int64_t i = 0; i < kTableSize; ++i) {
    const float value = -1.0F + (2.0F * static_cast<float>(i)) / static_cast<float>(kTableSize - 1);
    while (code + 1 < book.size() && 0.5F * (book[code] + book[code + 1]) < value) ++code;
    table[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code);
  }
  return table;
}

}  // namespace

float quantize_block(const float* values, std::int64_t count, bool whole, const SmallBook& book,
                     std::uint8_t* codes) {
  std::array<float, 15> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = (book[i] + book[i + 1]) / 2.0F;
  return quantize_values(values, count, whole, bounds.data(), codes);
}

float quantize_scales(const float* values, std::int64_t count, std::uint8_t* codes) {
  static const std::vector<std::uint8_t> table = make_table();
  float scale = 0;
  for (std::int64_t i = 0; i < count; ++i) scale = std::max(scale, std::fabs(values[i]));
  if (scale == 0.0F) {
    std::fill(codes, codes + count, std::uint8_t{0});
    return scale;
  }
  const float inverse = 1.0F / scale;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = std::clamp(values[i] * inverse, -1.0F, 1.0F);
    const auto place =
        static_cast<std::uint16_t>((value + 1.0F) * 0.5F * static_cast<float>(kTableSize - 1) + 0.5F);
    codes[i] = table[place];
  }
  return scale;
}

}  // namespace lorikeet::ops::cpu
