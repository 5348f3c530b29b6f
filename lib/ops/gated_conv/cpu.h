#pragma once

#include <ATen/core/Tensor.h>

#include "ops/gated_conv/gated_conv.h"

namespace lorikeet::ops::cpu {

/// As ops::gated_conv for fp32 or bf16 rows. weight: fp32 [K, C], dense, K at most 8: the transpose of that
/// of ops::gated_conv. before: [S, K - 1, C], dense, or undefined. y: [T, C], dense.
void gated_conv(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences,
                const at::Tensor& before, const at::Tensor& y);

/// As ops::gated_conv_backward, with such a weight. dprojected: like projected; y: undefined where nobody
/// wants it, else like dy.
void gated_conv_backward(const at::Tensor& dy, const at::Tensor& projected, const at::Tensor& weight,
                         const Sequences& sequences, const at::Tensor& dprojected, const at::Tensor& y);

}  // namespace lorikeet::ops::cpu
