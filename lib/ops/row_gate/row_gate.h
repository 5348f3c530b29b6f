#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// The gate of a shared expert (Qwen team 2024, Qwen1.5-MoE): one number a row, y = sigmoid(gate) * x, in
/// fp32 (fp64 for fp64), rounded once. x: [T, D], floating, contiguous; gate: [T, 1] of x's dtype,
/// contiguous. Returns a dense tensor of x's shape and dtype. From dy, the gradient of the result, it makes
/// that of x. Throws Error on shapes that don't fit.
at::Tensor row_gate(const at::Tensor& x, const at::Tensor& gate);

/// y += sigmoid(gate) * x, the sum in fp32 (fp64 for fp64), rounded once. y: of x's shape and dtype,
/// contiguous.
void add_row_gate_(const at::Tensor& y, const at::Tensor& x, const at::Tensor& gate);

/// The gate's gradient [T, 1], in its dtype, from the inner products [T] of the result's rows and their
/// gradient's, fp32 (fp64 for fp64): each times 1 - sigmoid(gate).
at::Tensor row_gate_backward(const at::Tensor& products, const at::Tensor& gate);

namespace reference {

/// row_gate by plain ATen calls, differentiable in x and gate, on any device and in fp64.
at::Tensor row_gate(const at::Tensor& x, const at::Tensor& gate);

}  // namespace reference
}  // namespace lorikeet::ops
