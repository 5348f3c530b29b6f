#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops::cpu {

/// As ops::sigmoid_gate for fp32 or bf16; elements of the gate's rows are dense. y: [T, D], dense.
void sigmoid_gate(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y);

/// As ops::sigmoid_gate_backward_. dgate may be gate; `y`, dense, may be undefined.
void sigmoid_gate_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gate,
                           const at::Tensor& dgate, const at::Tensor& y);

}  // namespace lorikeet::ops::cpu
