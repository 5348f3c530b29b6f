#pragma once

#include "ops/head_gradients.h"

namespace lorikeet::test {

/// The parts of a packed gradient as tensors of their own, as libtorch's kernels for GPUs make them.
inline ops::HeadGradients apart(const at::Tensor& packed, const ops::HeadLayout& layout) {
  const auto parts = ops::HeadGradients::of(packed, layout);
  return {parts.q.contiguous().clone(), parts.k.contiguous().clone(), parts.v.contiguous().clone()};
}

}  // namespace lorikeet::test
