#pragma once

#include <ATen/core/Tensor.h>

#include "ops/causal_conv/causal_conv.h"

namespace lorikeet::ops::cpu {

/// As ops::causal_conv for fp32 or bf16 x. weight: fp32 [K, C], dense, K at most 8: the transpose of that of
/// ops::causal_conv. before: [S, K - 1, C], dense, or undefined. bias: fp32 [C], dense, or undefined. y: [T,
/// C], dense.
void causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                 const at::Tensor& before, const at::Tensor& bias, const at::Tensor& y);

/// As ops::causal_conv_backward, with such a weight and bias. dx: of x's dtype, elements of a row dense.
void causal_conv_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                          const Sequences& sequences, const at::Tensor& bias, const at::Tensor& dx);

}  // namespace lorikeet::ops::cpu
