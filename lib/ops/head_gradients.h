#pragma once

#include <ATen/core/Tensor.h>

#include "ops/head_layout.h"

namespace lorikeet::ops {

/// The gradients of queries [T, H, D], keys and values [T, Hkv, D], heads and their elements dense: tensors
/// of their own, as libtorch's kernels for GPUs make them, or parts of one packed matrix.
struct HeadGradients {
  at::Tensor q, k, v;
  at::Tensor packed = {};  ///< [T, width], of which the others are views; undefined where there is none

  /// The views of a packed gradient, dense.
  static HeadGradients of(at::Tensor packed, const HeadLayout& layout);
};

/// The packed gradient [T, width]: the one that they are parts of, else a copy.
at::Tensor pack(const HeadGradients& gradients);

/// Where they lie, for kernels. Throws Error where heads or their elements aren't dense.
HeadsOnDevice on_device(const HeadGradients& gradients);

/// Whether each of their rows begins at a multiple of 16 bytes.
bool rows_are_aligned(const HeadGradients& gradients);

}  // namespace lorikeet::ops
