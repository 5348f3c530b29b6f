#pragma once

#include <cstdint>
#include <string>

namespace lorikeet::precision {

/// The 16 values that 4-bit codes stand for.
enum class CodeBook {
  kNF4,  ///< NormalFloat4: quantiles of a normal distribution (Dettmers et al. 2023, arXiv:2305.14314)
  kFP4   ///< a sign, two bits of exponent, one of mantissa; only read from checkpoints
};

/// How a frozen matrix is quantised: the numbers of a module's weight, row after row, in blocks that share a
/// scale, their largest absolute value.
struct Quantization {
  CodeBook book = CodeBook::kNF4;
  std::int64_t block = 64;
  /// Scales that share a scale of their own, less their mean and in 8 bits (double quantisation); 0: scales
  /// are fp32.
  std::int64_t nested_block = 256;

  bool operator==(const Quantization&) const = default;
};

/// "nf4 in blocks of 64, scales in blocks of 256".
std::string describe(const Quantization& quantization);

}  // namespace lorikeet::precision
