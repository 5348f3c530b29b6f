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
  const auto low = qk.slice(2, 0, half);
  const auto high = qk.slice(2, half, 2 * half);
  const auto c = cos.to(wide).unsqueeze(1);
  const auto s = sin.to(wide).unsqueeze(1);
  const auto rotated =
      at::cat({low * c - high * s, high * c + low * s, qk.slice(2, 2 * half, layout.head_dim)}, 2);
  return at::cat({rotated, heads.slice(1, turned)}, 1).to(qkv.scalar_type()).view({tokens, layout.width()});
}

}  // namespace lorikeet::ops::reference
