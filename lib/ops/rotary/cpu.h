#pragma once

#include <ATen/core/Tensor.h>

#include "ops/head_layout.h"

namespace lorikeet::ops::cpu {

/// Rotates the query and key heads of qkv [T, width], dense, fp32 or bf16, in place by the angles, or back by
/// them when `inverse`. cos, sin: [T, R/2] fp32, dense.
void rotate(at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, const HeadLayout& layout,
            bool inverse);

}  // namespace lorikeet::ops::cpu
