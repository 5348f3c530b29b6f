#pragma once

#include <ATen/core/Tensor.h>

#include "ops/activation/activation.h"

namespace lorikeet::ops::cpu {

/// As ops::gated_activation and its backward, for dense fp32 or bf16; out: [T, I].
void gated_forward(const at::Tensor& gate_up, Activation activation, at::Tensor& out);
void gated_backward(const at::Tensor& dy, Activation activation, at::Tensor& gate_up);

/// As ops::activation and its backward; out: [T, I].
void plain_forward(const at::Tensor& x, Activation activation, at::Tensor& out);
void plain_backward(const at::Tensor& dy, Activation activation, at::Tensor& x);

}  // namespace lorikeet::ops::cpu
