#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/head_layout.h"

namespace lorikeet::ops {

/// Heads of multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): a query is [plain | rotated], a
/// key [plain | rotated] where all heads share the rotated part, and values have a width of their own.
struct LatentLayout {
  std::int64_t heads;
  std::int64_t plain_dim;   ///< of each query and key, what isn't rotated (qk_nope_head_dim)
  std::int64_t rotary_dim;  ///< what is (qk_rope_head_dim), even
  std::int64_t value_dim;
  bool interleaved = false;  ///< as in HeadLayout

  std::int64_t key_dim() const { return plain_dim + rotary_dim; }
  /// Of the heads that attention reads: keys or values, whichever are wider.
  std::int64_t head_dim() const { return std::max(key_dim(), value_dim); }
  std::int64_t query_width() const { return heads * key_dim(); }
  /// Of rows that hold each head's [plain key | value].
  std::int64_t key_value_width() const { return heads * (plain_dim + value_dim); }
  /// Of what attention reads, which is rotated already.
  HeadLayout padded() const { return {heads, heads, head_dim()}; }
};

}  // namespace lorikeet::ops
