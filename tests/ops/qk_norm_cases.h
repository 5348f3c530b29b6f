#pragma once

#include <ATen/ATen.h>

#include "ops/distance.h"
#include "ops/qk_norm/qk_norm.h"
#include "support/head_gradients.h"

namespace lorikeet::test {

/// A form of norms of queries and keys with rotary: what it computes on the host, and from which input.
struct QkNormCase {
  const char* name;
  ops::HeadLayout layout;
  std::int64_t rotary_half;  ///< 0: nothing is rotated
  bool over_all_heads = false;
  ops::NormOptions options = {};
  bool one_kernel = true;  ///< on a GPU

  ops::QkNorms norms(const at::TensorOptions& place) const {
    const auto values = [&](std::int64_t heads, std::uint64_t seed) {
      const std::int64_t width = layout.head_dim * (over_all_heads ? heads : 1);
      return leaf({width}, seed).detach().to(at::kBFloat16).to(place);
    };
    const auto bias = [&](std::int64_t heads, std::uint64_t seed) {
      return options.kind == ops::NormKind::kLayer ? values(heads, seed) : at::Tensor();
    };
    return {.q = {values(layout.heads, 1), bias(layout.heads, 2)},
            .k = {values(layout.kv_heads, 3), bias(layout.kv_heads, 4)},
            .q_options = options,
            .k_options = options};
  }

  ops::RotaryAngles angles(std::int64_t rows) const {
    if (rotary_half == 0) return {};
    const auto values = [&](std::uint64_t seed) { return leaf({rows, rotary_half}, seed).detach(); };
    return {values(5).to(at::kFloat), values(6).to(at::kFloat)};
  }

  at::Tensor input(std::int64_t rows) const { return leaf({rows, layout.width()}, 7); }

  at::Tensor reference(const at::Tensor& x) const {
    return ops::reference::norm_and_rotate(x, norms(at::kDouble), angles(x.size(0)), layout);
  }
};

/// norm_and_rotate and its backward, for as_autograd. The parameters lie where x does.
inline Forward norm_and_rotate_pair(const QkNormCase& form, const ops::QkNorms& norms,
                                    const ops::RotaryAngles& angles) {
  return [=](const at::Tensor& x, Backward& backward) {
    ops::QkNormStatistics statistics;
    at::Tensor y = ops::norm_and_rotate(x, norms, angles, form.layout, &statistics);
    // What backward recomputes, without statistics.
    CHECK(at::equal(ops::norm_and_rotate(x, norms, angles, form.layout), y));
    backward = [=](const at::Tensor& dy) {
      const auto back = [&](const ops::HeadGradients& gradients) {
        return ops::norm_and_rotate_backward(gradients, x, norms, angles, form.layout, statistics);
      };
      at::Tensor dx = back(test::apart(dy, form.layout));
      CHECK(at::equal(back(ops::HeadGradients::of(dy.clone(), form.layout)), dx));
      return dx;
    };
    return y;
  };
}

/// On a GPU: a lane alone, several, idle ones where head_dim is no power of two, as wide as every dtype
/// takes.
inline const QkNormCase kQkNormCases[] = {
    {.name = "small heads", .layout = {4, 2, 16}, .rotary_half = 8},
    {.name = "heads of 128, unit offset",
     .layout = {3, 1, 128},
     .rotary_half = 64,
     .options = {.unit_offset = true}},
    {.name = "heads of 96", .layout = {2, 2, 96}, .rotary_half = 48},
    {.name = "heads of 256", .layout = {1, 1, 256}, .rotary_half = 128},
    {.name = "over all heads",
     .layout = {4, 2, 16},
     .rotary_half = 8,
     .over_all_heads = true,
     .one_kernel = false},
    {.name = "rotary of a part", .layout = {4, 2, 16}, .rotary_half = 3, .one_kernel = false},
    {.name = "no rotary", .layout = {4, 2, 16}, .rotary_half = 0, .one_kernel = false},
    {.name = "interleaved", .layout = {4, 2, 16, true}, .rotary_half = 8, .one_kernel = false},
    {.name = "odd heads", .layout = {2, 1, 10}, .rotary_half = 5, .one_kernel = false},
    {.name = "layer norm",
     .layout = {4, 2, 16},
     .rotary_half = 8,
     .options = {.kind = ops::NormKind::kLayer},
     .one_kernel = false},
};

}  // namespace lorikeet::test
