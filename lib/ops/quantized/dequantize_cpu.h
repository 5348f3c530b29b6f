#pragma once

#include <cstdint>

#include "ops/quantized/expand_blocks.h"
#include "ops/quantized/parts.h"

namespace lorikeet::ops::cpu {

/// Writes the numbers [first, first + count) of a quantised tensor, rounded, as fp32.
void dequantize(const QuantizedParts& parts, std::int64_t first, std::int64_t count, Rounding rounding,
                float* out);
/// The same as the bits of the 16-bit dtype that they are rounded to, which isn't kNone.
void dequantize(const QuantizedParts& parts, std::int64_t first, std::int64_t count, Rounding rounding,
                std::uint16_t* out);

}  // namespace lorikeet::ops::cpu
