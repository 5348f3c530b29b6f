#include <ATen/ATen.h>

#include "ops/latent_heads/latent_heads.h"
#include "ops/rotary/rotary.h"

namespace lorikeet::ops::reference {

at::Tensor latent_heads(const LatentParts& parts, const at::Tensor& cos, const at::Tensor& sin,
                        const LatentLayout& layout) {
  const auto rotated = [&](const at::Tensor& heads) {
    const HeadLayout of_these{heads.size(1), 0, layout.rotary_dim, layout.interleaved};
    return rotary(heads.flatten(1), cos, sin, of_these).view(heads.sizes());
  };
  const auto filled_up = [&](const at::Tensor& heads) {
    return at::constant_pad_nd(heads, {0, layout.head_dim() - heads.size(2)}).flatten(1);
  };
  const auto queries = parts.q.unflatten(1, {layout.heads, layout.key_dim()})
                           .split_with_sizes({layout.plain_dim, layout.rotary_dim}, 2);
  const auto keys_values = parts.kv.unflatten(1, {layout.heads, layout.plain_dim + layout.value_dim})
                               .split_with_sizes({layout.plain_dim, layout.value_dim}, 2);
  const at::Tensor shared =
      rotated(parts.shared_key.unsqueeze(1)).expand({parts.q.size(0), layout.heads, layout.rotary_dim});
  return at::cat({filled_up(at::cat({queries[0], rotated(queries[1])}, 2)),
                  filled_up(at::cat({keys_values[0], shared}, 2)), filled_up(keys_values[1])},
                 1);
}

}  // namespace lorikeet::ops::reference
