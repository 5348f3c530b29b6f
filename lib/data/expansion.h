#pragma once

#include <cstdint>
#include <string>

namespace lorikeet::data {

/// How far compressed data may expand, so that a small file can't fill the memory. DEFLATE reaches 1032 : 1
/// on zeros and zstd far more; text stays well under 100 : 1.
struct ExpansionLimits {
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< of output
  std::uint64_t max_ratio = 200;                     ///< output per input byte ...
  std::uint64_t ratio_free_bytes = 16 << 20;         ///< ... once there is more output than this
};

/// Throws Error "[data] '<name>': the <codec> data expands ..." if `produced` bytes out of `consumed` are
/// beyond `limits`.
void check_expansion(std::uint64_t produced, std::uint64_t consumed, const ExpansionLimits& limits,
                     const std::string& codec, const std::string& name);

}  // namespace lorikeet::data
