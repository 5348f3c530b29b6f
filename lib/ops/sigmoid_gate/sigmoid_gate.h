#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// The gate behind attention (Qiu et al. 2025, arXiv:2505.06708): y = x * sigmoid(gate), in fp32 (fp64 for
/// fp64), rounded once. x: [T, D], contiguous; gate: of x's shape and dtype, elements of a row dense, rows
/// any distance apart. Returns a dense tensor of x's shape and dtype. Throws Error on shapes that don't fit.
at::Tensor sigmoid_gate(const at::Tensor& x, const at::Tensor& gate);

/// From dy, the gradient of the result, dense: writes x's gradient over dy and the gate's into dgate (of the
/// gate's shape, rows any distance apart). `y`, unless it is null, gets the result once more.
void sigmoid_gate_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& dgate, at::Tensor* y = nullptr);

namespace reference {

/// sigmoid_gate by plain ATen calls, differentiable in x and gate, on any device and in fp64.
at::Tensor sigmoid_gate(const at::Tensor& x, const at::Tensor& gate);

}  // namespace reference
}  // namespace lorikeet::ops
