#pragma once

#include <ATen/core/Tensor.h>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"

namespace lorikeet::ops::cpu {

/// As ops::softmax_nll, for dense fp32 or bf16 logits on the CPU and fp32 nll.
void softmax_nll(at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options,
                 bool gradient, double grad_scale, at::Tensor& nll);

}  // namespace lorikeet::ops::cpu
