#pragma once

#include <ATen/ATen.h>

#include "ops/latent_heads/latent_heads.h"
#include "support/as_autograd.h"
#include "support/catch.h"

// What tests of latent attention's heads share, on a CPU and on a card.
namespace lorikeet::test {

/// The layouts that are tested: values narrower than keys, wider (heads are filled up), of one width, and
/// sizes that leave no whole access of 16 bytes.
inline const ops::LatentLayout kLatentLayouts[] = {{3, 32, 16, 32, true},
                                                   {2, 16, 16, 48, false},
                                                   {2, 8, 16, 24, false},
                                                   {1, 5, 6, 3, true},
                                                   {2, 5, 6, 13, false}};

inline std::int64_t parts_width(const ops::LatentLayout& layout) {
  return layout.query_width() + layout.key_value_width() + layout.rotary_dim;
}

/// The parts of rows [q | kv | shared key]: columns of wider rows.
inline ops::LatentParts latent_parts(const at::Tensor& rows, const ops::LatentLayout& layout) {
  const auto parts =
      rows.split_with_sizes({layout.query_width(), layout.key_value_width(), layout.rotary_dim}, 1);
  return {parts[0], parts[1], parts[2]};
}

/// Positions' cosines and sines, fp64 [tokens, rotary / 2].
inline std::pair<at::Tensor, at::Tensor> latent_angles(std::int64_t tokens, const ops::LatentLayout& layout) {
  const std::int64_t half = layout.rotary_dim / 2;
  const at::Tensor positions = at::arange(tokens, at::kDouble).unsqueeze(1);
  const at::Tensor angle =
      positions / at::pow(50.0, at::arange(half, at::kDouble) / static_cast<double>(half));
  return {at::cos(angle), at::sin(angle)};
}

/// latent_heads as a function of such rows. Checks that backward leaves what lies beside its results, and
/// gives the same from gradients that are tensors of their own.
inline Forward latent_pair(const ops::LatentLayout& layout, const at::Tensor& cos, const at::Tensor& sin) {
  return [=](const at::Tensor& rows, Backward& backward) {
    const at::Tensor packed = ops::latent_heads(latent_parts(rows, layout), cos, sin, layout);
    backward = [=](const at::Tensor& dy) {
      const at::Tensor wide = at::full({rows.size(0), rows.size(1) + 16}, 7, rows.options());
      const at::Tensor apart = at::empty_like(rows);
      const auto packed_gradients = ops::HeadGradients::of(dy.contiguous(), layout.padded());
      ops::latent_heads_backward(packed_gradients, cos, sin, layout,
                                 latent_parts(wide.narrow(1, 8, rows.size(1)), layout));
      const auto& [q, k, v, whole] = packed_gradients;
      ops::latent_heads_backward({q.contiguous(), k.contiguous(), v.contiguous()}, cos, sin, layout,
                                 latent_parts(apart, layout));
      CHECK(at::equal(wide.narrow(1, 8, rows.size(1)).cpu(), apart.cpu()));
      CHECK(wide.narrow(1, 0, 8).eq(7).all().item<bool>());
      CHECK(wide.slice(1, rows.size(1) + 8).eq(7).all().item<bool>());
      return apart;
    };
    return packed;
  };
}

/// Its reference as a function of such rows.
inline std::function<at::Tensor(const at::Tensor&)> latent_reference(const ops::LatentLayout& layout,
                                                                     const at::Tensor& cos,
                                                                     const at::Tensor& sin) {
  return [=](const at::Tensor& rows) {
    return ops::reference::latent_heads(latent_parts(rows, layout), cos, sin, layout);
  };
}

}  // namespace lorikeet::test
