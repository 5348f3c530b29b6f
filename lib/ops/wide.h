#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// The type that sums and statistics of `tensor` are kept in: fp64 for fp64, else fp32.
inline at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace lorikeet::ops
