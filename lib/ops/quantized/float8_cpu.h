#pragma once

#include <cstdint>

#include "ops/quantized/expand_blocks.h"

namespace lorikeet::ops::cpu {

/// A row's share of one block: numbers of `codes`, times `scale` in fp32, rounded, as fp32.
void decode_float8(const std::uint8_t* codes, std::int64_t count, float scale, Rounding rounding, float* out);
/// The same as the bits of the 16-bit dtype that they are rounded to, which isn't kNone.
void decode_float8(const std::uint8_t* codes, std::int64_t count, float scale, Rounding rounding,
                   std::uint16_t* out);

/// A row's codes. Returns its scale: the largest absolute value over kFloat8Largest, 1 for a row of zeros;
/// infinite or NaN where a value is, and then the codes mean nothing.
float encode_float8(const float* values, std::int64_t count, std::uint8_t* codes);

}  // namespace lorikeet::ops::cpu
