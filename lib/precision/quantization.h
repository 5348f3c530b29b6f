#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace lorikeet::precision {

/// The 16 values that 4-bit codes stand for.
enum class CodeBook {
  kNF4,  ///< NormalFloat4: quantiles of a normal distribution (Dettmers et al. 2023, arXiv:2305.14314)
  kFP4,  ///< bitsandbytes' numbers of a sign, two bits of exponent, one of mantissa; only read from
         ///< checkpoints
  /// The same by OCP Microscaling Formats 1.0 (E2M1), 0 to 6; only read from checkpoints, with kMxfp4's
  /// scales.
  kE2M1
};

/// A frozen matrix in 4 bits: the numbers of a module's weight, row after row, in blocks that share a scale,
/// their largest absolute value.
struct FourBits {
  CodeBook book = CodeBook::kNF4;
  std::int64_t block = 64;
  /// Scales that share a scale of their own, less their mean and in 8 bits (double quantisation); 0: scales
  /// are fp32.
  std::int64_t nested_block = 256;

  bool operator==(const FourBits&) const = default;
};

/// mxfp4: scales are powers of two, the 8-bit codes of a book that has them all.
inline constexpr FourBits kMxfp4{.book = CodeBook::kE2M1, .block = 32, .nested_block = 256};

/// A frozen matrix in fp8 (e4m3 without infinities, Micikevicius et al. 2022, arXiv:2209.05433): the numbers
/// of a module's weight divided by a fp32 scale, which is shared by a block of rows and columns.
struct Float8 {
  std::int64_t block_rows = 1;  ///< 0: all rows
  std::int64_t block_cols = 0;  ///< 0: all columns

  bool operator==(const Float8&) const = default;
};

/// How a frozen matrix is quantised.
using Quantization = std::variant<FourBits, Float8>;

/// "nf4 in blocks of 64, scales in blocks of 256", "fp8 (e4m3), a scale for each row".
std::string describe(const Quantization& quantization);

/// The short name that base_storage has for it: "nf4", "fp4", "fp8"; or "mxfp4".
std::string short_name(const Quantization& quantization);

}  // namespace lorikeet::precision
