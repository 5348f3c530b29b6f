#pragma once

#include <ATen/core/Tensor.h>

#include "ops/norm/norm.h"

namespace lorikeet::ops::cpu {

/// fp32 [D] dense, an offset added; the bias may be undefined.
struct NormScale {
  at::Tensor weight, bias;
};

/// As ops::norm for fp32 or bf16 x and y: dense, or [T, H, D] whose last two dimensions are dense. Fills the
/// statistics, which are allocated: layer norm is meant where they have a mean. With `delta` (may be
/// undefined; then all are dense [T, D]) x + delta is normed instead, and written to `sum`.
void norm_forward(const at::Tensor& x, const at::Tensor& delta, const NormScale& scale, double eps,
                  at::Tensor& sum, at::Tensor& y, NormStatistics& statistics);

/// As ops::norm_backward, with such strides too. dx may be dy; `again` may be undefined.
void norm_backward(const at::Tensor& dy, const at::Tensor& extra, const at::Tensor& x, const NormScale& scale,
                   const NormStatistics& statistics, at::Tensor& dx, const at::Tensor& again);

}  // namespace lorikeet::ops::cpu
