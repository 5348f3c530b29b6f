#pragma once

#include <algorithm>
#include <cstdint>

namespace lorikeet::ops {

/// Rows of a 16-bit weight with `cols` columns that are widened to fp32 at a time where products can't be
/// done in 16 bits: 1 MB, so that the panel stays in a core's cache while it is used, in whole tiles of the
/// product's kernels, and never fewer than 128.
inline std::int64_t panel_rows(std::int64_t cols) {
  constexpr std::int64_t kElements = std::int64_t{1} << 18, kLeast = 128, kStep = 64;
  const std::int64_t rows = kElements / std::max<std::int64_t>(cols, 1);
  return std::max(kLeast, (rows + kStep - 1) / kStep * kStep);
}

}  // namespace lorikeet::ops
