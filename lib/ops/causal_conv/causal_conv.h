#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/attention.h"

namespace lorikeet::ops {

/// A causal convolution of each channel by itself over each sequence of a packed batch, then SiLU, as gated
/// delta nets and Mamba have it before their recurrence:
///   y[t, c] = silu(sum_{j < K} weight[c, K - 1 - j] x[t - j, c] + bias[c]),
/// where x before a sequence's first row is what `before` says, and 0 without it. Sums are fp32 (fp64 for
/// fp64). x: [T, C], floating, elements of a row dense, rows any distance apart; weight: [C, K], 1 <= K <= 8,
/// frozen, fp32 or of x's dtype; before: [S, K - 1, C] of x's dtype, the rows before each of the S sequences
/// (decoding); bias: [C], frozen, fp32 or of x's dtype, or undefined for 0. Returns a dense [T, C] of x's
/// dtype. A sequence's result doesn't depend on what it is packed with. Throws Error on shapes that don't
/// fit.
at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before = {}, const at::Tensor& bias = {});

/// x's gradient, written into dx ([T, C], rows any distance apart), from dy [T, C] (dense) and forward's x
/// and bias, of sequences with nothing before them.
void causal_conv_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                          const Sequences& sequences, const at::Tensor& dx, const at::Tensor& bias = {});

namespace reference {

/// The sums that causal_conv applies SiLU to, in fp32 (fp64 for fp64).
at::Tensor causal_sums(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before = {});

/// causal_conv by plain ATen calls, differentiable in x, on any device and in fp64.
at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before = {}, const at::Tensor& bias = {});

}  // namespace reference
}  // namespace lorikeet::ops
