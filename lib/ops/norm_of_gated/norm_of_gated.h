#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lorikeet::ops {

/// The norm behind Mamba 2's state space: an RMS norm of each group of what a gate was applied to,
///   u = x * silu(z);   y = weight * u / sqrt(mean over the group of u^2 + eps),
/// in fp32 (fp64 for fp64), rounded once. x: [T, groups * D], contiguous; z: of x's shape and dtype, elements
/// of a row dense, rows any distance apart; weight: [groups * D], frozen, fp32 or of x's dtype. Returns a
/// dense tensor of x's shape and dtype. (ops::gated_norm has the gate behind the norm.) Throws Error on
/// shapes that don't fit.
at::Tensor norm_of_gated(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                         std::int64_t groups, double eps);

/// From dy, the gradient of the result, dense: writes x's gradient over dy and z's into dz (of z's shape,
/// rows any distance apart), which may be z. `y`, unless it is null, gets the result once more.
void norm_of_gated_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                             const at::Tensor& weight, std::int64_t groups, double eps, const at::Tensor& dz,
                             at::Tensor* y = nullptr);

namespace reference {

/// norm_of_gated by plain ATen calls, differentiable in x and z, on any device and in fp64.
at::Tensor norm_of_gated(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                         std::int64_t groups, double eps);

}  // namespace reference
}  // namespace lorikeet::ops
