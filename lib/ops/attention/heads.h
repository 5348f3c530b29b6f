#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/head_layout.h"

namespace lorikeet::ops {

/// Queries [T, H, D], keys and values [T, Hkv, D].
struct Heads {
  at::Tensor q, k, v;
};

/// Those of packed rows [T, (H + 2 Hkv) D], dense, as views.
inline Heads split_heads(const at::Tensor& qkv, const HeadLayout& layout) {
  const at::Tensor heads = qkv.view({qkv.size(0), layout.heads + 2 * layout.kv_heads, layout.head_dim});
  const std::int64_t v = layout.heads + layout.kv_heads;
  return {heads.slice(1, 0, layout.heads), heads.slice(1, layout.heads, v), heads.slice(1, v)};
}

/// The rows [ends[s], ends[s + 1]) of each sequence s, views.
inline std::vector<at::Tensor> by_sequence(const at::Tensor& rows, const std::vector<std::int32_t>& ends) {
  std::vector<at::Tensor> parts;
  for (std::size_t s = 0; s + 1 < ends.size(); ++s) parts.push_back(rows.slice(0, ends[s], ends[s + 1]));
  return parts;
}

}  // namespace lorikeet::ops
