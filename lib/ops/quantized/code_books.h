#pragma once

#include <array>

#include "precision/quantization.h"

namespace lorikeet::ops {

/// Values of 4-bit codes, by code.
using SmallBook = std::array<float, 16>;
/// Values of 8-bit codes, by code.
using LargeBook = std::array<float, 256>;

/// nf4 and fp4: the same numbers as bitsandbytes has, to the bit.
const SmallBook& code_book(precision::CodeBook book);

/// The signed 8-bit dynamic data type in which scales are stored (Dettmers 2016, arXiv:1511.04561),
/// ascending: the leading zeros of a code are a decimal exponent, the bits after them a linear fraction.
const LargeBook& dynamic_book();

}  // namespace lorikeet::ops
