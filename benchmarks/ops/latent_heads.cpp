#include "latent_heads.h"

#include <ATen/ATen.h>

#include "ops/latent_heads/latent_heads.h"

namespace lorikeet::bench {
namespace {

using namespace lorikeet::ops;
using test::Backward;
using Outputs = std::vector<at::Tensor>;

constexpr std::int64_t kTokens = 2048;
constexpr LatentLayout kLayout{16, 128, 64, 128, true};

LatentParts parts_of(const at::Tensor& rows) {
  const auto parts =
      rows.split_with_sizes({kLayout.query_width(), kLayout.key_value_width(), kLayout.rotary_dim}, 1);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace

void bench_latent_heads(const Settings& s) {
  const std::int64_t width = kLayout.query_width() + kLayout.key_value_width() + kLayout.rotary_dim;
  const at::Tensor rows = at::randn({kTokens, width}).to(s.dtype);
  const at::Tensor upstream = at::randn({kTokens, kLayout.padded().width()}).to(s.dtype);
  const at::Tensor angles = at::randn({kTokens, kLayout.rotary_dim / 2});
  const at::Tensor cos = angles.cos(), sin = angles.sin(), gradient = at::empty_like(rows);
  // As transformers does it, with tables of the model's dtype, but for the order of rotated numbers.
  const at::Tensor c = cos.to(s.dtype).unsqueeze(1), n = sin.to(s.dtype).unsqueeze(1);
  const auto turn = [=](const at::Tensor& x) {
    const at::Tensor low = x.slice(2, 0, x.size(2), 2), high = x.slice(2, 1, x.size(2), 2);
    return at::stack({low * c - high * n, high * c + low * n}, 3).flatten(2);
  };
  const double bytes = static_cast<double>(rows.nbytes() + upstream.nbytes());
  compare(
      s, {.name = "latent_heads",
          .input = rows,
          .upstream = upstream,
          .here =
              [=](const auto& v, Backward& backward) {
                backward = [=](const auto& dy) {
                  latent_heads_backward(HeadGradients::of(dy, kLayout.padded()), cos, sin, kLayout,
                                        parts_of(gradient));
                  return gradient;
                };
                return latent_heads(parts_of(v), cos, sin, kLayout);
              },
          .reference = [=](const auto& v) -> Outputs {
            return {reference::latent_heads(parts_of(v), cos, sin, kLayout)};
          },
          .aten = [=](const auto& v) -> Outputs {
            const LatentParts parts = parts_of(v);
            const auto q = parts.q.unflatten(1, {kLayout.heads, kLayout.key_dim()})
                               .split_with_sizes({kLayout.plain_dim, kLayout.rotary_dim}, 2);
            const auto kv = parts.kv.unflatten(1, {kLayout.heads, kLayout.plain_dim + kLayout.value_dim})
                                .split_with_sizes({kLayout.plain_dim, kLayout.value_dim}, 2);
            const at::Tensor shared = turn(parts.shared_key.unsqueeze(1)).expand({-1, kLayout.heads, -1});
            const at::Tensor values = at::constant_pad_nd(kv[1], {0, kLayout.key_dim() - kLayout.value_dim});
            return {
                at::cat({at::cat({q[0], turn(q[1])}, 2), at::cat({kv[0], shared}, 2), values}, 1).flatten(1)};
          },
          .forward_bytes = bytes,
          .together_bytes = 2 * bytes});
}

}  // namespace lorikeet::bench
