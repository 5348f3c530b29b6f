#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops::cpu {

/// y = x * rstd * w, rstd [T] fp32 written. x, y: [T, D], dense, fp32 or bf16; w: [D] fp32, the offset added.
/// With `delta` (may be undefined) x + delta is normed instead, and written to `sum`.
void rms_norm_forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& w, double eps,
                      at::Tensor& sum, at::Tensor& y, at::Tensor& rstd);

/// dx = d(y)/d(x)^T dy + extra, for the same x, w and rstd; extra (may be undefined) is [T, D].
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x,
                       const at::Tensor& w, const at::Tensor& rstd, at::Tensor& dx);

}  // namespace lorikeet::ops::cpu
