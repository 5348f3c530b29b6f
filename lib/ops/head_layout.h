#pragma once

#include <cstdint>

namespace lorikeet::ops {

/// How a packed attention projection's row [q heads | k heads | v heads] is divided.
struct HeadLayout {
  std::int64_t heads;     ///< query heads
  std::int64_t kv_heads;  ///< key heads, and as many value heads; divides `heads`
  std::int64_t head_dim;
  /// Which dimensions of a head rotary turns together: neighbours 2i and 2i + 1 (GLM, Cohere), or i and
  /// R/2 + i, for R rotated dimensions.
  bool interleaved = false;

  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t k_begin() const { return heads * head_dim; }
  std::int64_t v_begin() const { return (heads + kv_heads) * head_dim; }
};

/// Queries, keys and values in device memory, each dense but for its rows, which begin `row` elements apart.
struct HeadsOnDevice {
  const void *q, *k, *v;
  std::int64_t q_row, k_row, v_row;
};

}  // namespace lorikeet::ops
