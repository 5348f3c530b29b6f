#pragma once

#include <cstdint>

#include "ops/quantized/code_books.h"

namespace lorikeet::ops::cpu {

/// A block's scale, its largest absolute value, and the nearest values' codes, two a byte, the first in the
/// high bits; the last of an odd number shares its byte with the code of 0. Ties go to the lower value.
/// `book` ascends. `whole`: the block isn't a shorter last one, which bitsandbytes divides by its scale
/// instead of multiplying with the inverse.
float quantize_block(const float* values, std::int64_t count, bool whole, const SmallBook& book,
                     std::uint8_t* codes);

/// The same of 8-bit codes for the dynamic book; bitsandbytes looks the code up by the number rounded to 16
/// bits.
float quantize_scales(const float* values, std::int64_t count, std::uint8_t* codes);

}  // namespace lorikeet::ops::cpu
