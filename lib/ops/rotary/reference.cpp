#include <ATen/ATen.h>

#include "ops/rotary/rotary.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor rotary(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                  const HeadLayout& layout) {
  const auto wide = wide_type(qkv);
  const auto tokens = qkv.size(0);
  const auto half = cos.size(1);
  const auto turned = layout.heads + layout.kv_heads;
  const auto heads = qkv.to(wide).view({tokens, turned + layout.kv_heads, layout.head_dim});
  const auto qk = heads.slice(1, 0, turned);
  const auto pairs = qk.slice(2, 0, 2 * half);
  const auto low = layout.interleaved ? pairs.slice(2, 0, 2 * half, 2) : pairs.slice(2, 0, half);
  const auto high = layout.interleaved ? pairs.slice(2, 1, 2 * half, 2) : pairs.slice(2, half, 2 * half);
  const auto c = cos.to(wide).unsqueeze(1);
  const auto s = sin.to(wide).unsqueeze(1);
  const auto turned_low = low * c - high * s, turned_high = high * c + low * s;
  const auto turned_pairs = layout.interleaved ? at::stack({turned_low, turned_high}, 3).flatten(2)
                                               : at::cat({turned_low, turned_high}, 2);
  const auto rotated = at::cat({turned_pairs, qk.slice(2, 2 * half, layout.head_dim)}, 2);
  return at::cat({rotated, heads.slice(1, turned)}, 1).to(qkv.scalar_type()).view({tokens, layout.width()});
}

}  // namespace lorikeet::ops::reference
