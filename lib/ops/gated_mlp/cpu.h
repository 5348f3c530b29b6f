#pragma once

#include <ATen/core/Tensor.h>

#include "ops/gated_mlp/gated_mlp.h"

namespace lorikeet::ops::cpu {

/// out [T, I] = act(gate) * up for gate_up [T, 2I], dense, fp32 or bf16.
void gated_forward(const at::Tensor& gate_up, Activation activation, at::Tensor& out);

/// grad [T, 2I] of gate_up, from dout [T, I].
void gated_backward(const at::Tensor& dout, const at::Tensor& gate_up, Activation activation,
                    at::Tensor& grad);

}  // namespace lorikeet::ops::cpu
