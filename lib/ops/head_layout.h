#pragma once

#include <cstdint>

namespace lorikeet::ops {

/// How a packed attention projection's row [q heads | k heads | v heads] is divided.
struct HeadLayout {
  std::int64_t heads;     ///< query heads
  std::int64_t kv_heads;  ///< key heads, and as many value heads; divides `heads`
  std::int64_t head_dim;
  /// What rotary turns together: dimensions 2i and 2i + 1 of a head if true (GLM, Cohere), else i and
  /// i + R/2 of R rotated ones.
  bool interleaved = false;

  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t k_begin() const { return heads * head_dim; }
  std::int64_t v_begin() const { return (heads + kv_heads) * head_dim; }
  /// Of rows that hold the queries alone.
  HeadLayout of_queries() const { return {heads, 0, head_dim, interleaved}; }
};

/// Queries, keys and values in device memory, each dense but for its rows, which begin `row` elements apart.
struct HeadsOnDevice {
  const void *q, *k, *v;
  std::int64_t q_row, k_row, v_row;
};

}  // namespace lorikeet::ops
