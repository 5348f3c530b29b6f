#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/attention.h"

namespace lorikeet::ops {

/// LFM2's short convolution between its projections: a causal convolution of each channel by itself over each
/// sequence of a packed batch, with a gate before and a gate behind it. `projected` [T, 3C] has rows
/// [b | c | x]; with u = b x, rounded to the rows' type,
///   y[t, k] = c[t, k] sum_{j < K} weight[k, K - 1 - j] u[t - j, k],
/// where u before a sequence's first row is what `before` says, and 0 without it. Sums are fp32 (fp64 for
/// fp64). projected: floating, dense; weight: [C, K], 1 <= K <= 8, frozen, fp32 or of the rows' type; before:
/// [S, K - 1, C] of the rows' type, u of the rows before each of the S sequences (decoding). Returns a dense
/// [T, C]. A sequence's result doesn't depend on what it is packed with. Source: transformers' Lfm2ShortConv.
/// Throws Error on shapes that don't fit.
at::Tensor gated_conv(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences,
                      const at::Tensor& before = {});

/// The gradient of `projected` [T, 3C], dense, from dy [T, C], dense, of sequences with nothing before them.
/// `y`, unless it is null, gets forward's result again.
at::Tensor gated_conv_backward(const at::Tensor& dy, const at::Tensor& projected, const at::Tensor& weight,
                               const Sequences& sequences, at::Tensor* y = nullptr);

namespace reference {

/// gated_conv by plain ATen calls, differentiable in `projected`, on any device and in fp64.
at::Tensor gated_conv(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences,
                      const at::Tensor& before = {});

}  // namespace reference
}  // namespace lorikeet::ops
