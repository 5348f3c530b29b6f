#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops::cpu {

/// As ops::scale_columns for dense fp32 or bf16 x; factors and bias fp32 (bias may be undefined). Fills y.
void scale_columns(const at::Tensor& x, const at::Tensor& factors, const at::Tensor& bias, at::Tensor& y);

/// As ops::scale_columns_backward, likewise. Fills dx and sums. A column's sum doesn't depend on the number
/// of threads.
void scale_columns_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& factors,
                            at::Tensor& dx, at::Tensor& sums);

}  // namespace lorikeet::ops::cpu
