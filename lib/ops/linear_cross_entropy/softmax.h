#pragma once

#include <ATen/core/Tensor.h>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"

namespace lorikeet::ops {

/// What one chunk's logits give. logits: [C, V] dense, without scale and cap; labels: int64 [C] in range;
/// nll: [C] fp32 (fp64), written. With `gradient`, logits is overwritten with grad_scale times the gradient
/// of sum(nll) with respect to the given logits; without, it may be overwritten with anything.
void softmax_nll(at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options,
                 bool gradient, double grad_scale, at::Tensor nll);

}  // namespace lorikeet::ops
