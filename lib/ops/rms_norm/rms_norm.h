#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace lorikeet::ops {

/// Root-mean-square normalisation (Zhang and Sennrich 2019, arXiv:1910.07467) of every row:
///   y = x / sqrt(mean(x^2) + eps) * w,   with w = 1 + weight when `unit_offset` (Gemma).
/// x: [T, D], floating; weight: [D], floating, frozen (it gets no gradient). Returns [T, D] in x's dtype.
/// Statistics and products are fp32 (fp64 for fp64 input), rounded once. Backward keeps x and one fp32 a row.
/// Throws Error on shapes that don't fit.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool unit_offset = false);

/// A residual stream's step: {sum, normed} with sum = residual + delta, rounded to their dtype, and
/// normed = rms_norm(sum). residual and delta: [T, D], of one dtype. Both get the same gradient.
std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual, const at::Tensor& delta,
                                                const at::Tensor& weight, double eps,
                                                bool unit_offset = false);

namespace reference {

/// The same by plain ATen calls, differentiable in x, on any device and in fp64.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool unit_offset = false);
std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual, const at::Tensor& delta,
                                                const at::Tensor& weight, double eps,
                                                bool unit_offset = false);

}  // namespace reference
}  // namespace lorikeet::ops
