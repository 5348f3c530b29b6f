#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// Cosines or sines as kernels read them: fp32, dense.
inline at::Tensor dense_floats(const at::Tensor& angles) { return angles.to(at::kFloat).contiguous(); }

}  // namespace lorikeet::ops
