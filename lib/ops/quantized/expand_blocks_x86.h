#pragma once

#include "ops/quantized/expand_blocks.h"

// The forms of expand_blocks for x86-64's vector instructions; `from.pairs` is a multiple of 16. Elsewhere
// has_avx2 and has_avx512 are false, and the functions aren't called.
namespace lorikeet::ops::cpu {

bool has_avx2();
bool has_avx512();  ///< its foundation with BW and VL

void expand_avx2(const CodedBlocks& from, Rounding rounding, float* out);
void expand_avx2(const CodedBlocks& from, Rounding rounding, std::uint16_t* out);
void expand_avx512(const CodedBlocks& from, Rounding rounding, float* out);
void expand_avx512(const CodedBlocks& from, Rounding rounding, std::uint16_t* out);

}  // namespace lorikeet::ops::cpu
