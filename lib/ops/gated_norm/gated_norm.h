#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// The norm behind a gated delta net's recurrence: an RMS norm over each head, times SiLU of a gate,
///   y = weight * x / sqrt(mean(x^2) + eps) * silu(z),
/// in fp32 (fp64 for fp64), rounded once. x: [T, heads * D], contiguous; z: of x's shape and dtype, elements
/// of a row dense, rows any distance apart; weight: [D], frozen, fp32 or of x's dtype; heads follow from the
/// sizes. Returns a dense tensor of x's shape and dtype. Throws Error on shapes that don't fit.
at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps);

/// From dy, the gradient of the result, dense: writes x's gradient over dy and z's into dz (of z's shape,
/// rows any distance apart). `y`, unless it is null, gets the result once more.
void gated_norm_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                          const at::Tensor& weight, double eps, const at::Tensor& dz,
                          at::Tensor* y = nullptr);

namespace reference {

/// gated_norm by plain ATen calls, differentiable in x and z, on any device and in fp64.
at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps);

}  // namespace reference
}  // namespace lorikeet::ops
