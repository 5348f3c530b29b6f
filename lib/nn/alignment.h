#pragma once

#include <cstdint>

namespace lorikeet::nn {

/// Where matrices and units of weights begin: coarse enough for any vector load, for collectives and for
/// cutting a unit into shards.
inline constexpr std::int64_t kAlignmentBytes = 512;

/// The next multiple of kAlignmentBytes.
inline std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

}  // namespace lorikeet::nn
