#pragma once

#include <ATen/core/Tensor.h>

#include "ops/activation/activation.h"

namespace lorikeet::ops::cpu {

/// As ops::gated_activation and its backward, for dense fp32 or bf16; out and again: [T, I]; again may be
/// null.
void gated_forward(const at::Tensor& gate_up, Activation activation, at::Tensor& out);
void gated_backward(const at::Tensor& dy, Activation activation, at::Tensor& gate_up, at::Tensor* again);

/// As ops::activation and its backward.
void plain_forward(const at::Tensor& x, Activation activation, at::Tensor& out);
void plain_backward(const at::Tensor& dy, Activation activation, at::Tensor& x, at::Tensor* again);

}  // namespace lorikeet::ops::cpu
