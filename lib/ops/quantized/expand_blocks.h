#pragma once

#include <cstdint>

namespace lorikeet::ops::cpu {

/// What decoded numbers are rounded to.
enum class Rounding { kNone, kBF16, kF16 };

/// The instructions that codes are looked up with.
enum class Lookup { kPlain, kAvx2, kAvx512 };

/// The best that this CPU has.
Lookup best_lookup();

/// A run of whole blocks of 4-bit codes: `codes` has `pairs` bytes a block, `scales` one fp32 a block.
struct CodedBlocks {
  const std::uint8_t* codes;
  const float* scales;
  const float* book;  ///< [16]
  std::int64_t blocks, pairs;
};

/// Writes the numbers of whole blocks, book[code] * scale rounded, as fp32, 2 * pairs a block. Every
/// `lookup` writes the same bits; the CPU must have it.
void expand_blocks(const CodedBlocks& from, Rounding rounding, Lookup lookup, float* out);
/// The same as the bits of the 16-bit dtype that they are rounded to, which isn't kNone.
void expand_blocks(const CodedBlocks& from, Rounding rounding, Lookup lookup, std::uint16_t* out);

/// The 16 numbers that the codes of a block stand for, rounded.
void fill_table(const float* book, float scale, Rounding rounding, float* table);
void fill_table(const float* book, float scale, Rounding rounding, std::uint16_t* table);

}  // namespace lorikeet::ops::cpu
