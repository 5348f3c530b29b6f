#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cuda_launch.h"

// What kernels ask of the rows of a matrix that may be columns of a wider one.
namespace lorikeet::ops {

/// Whether the elements of each row lie next to each other; rows may be any distance apart.
inline bool rows_are_dense(const at::Tensor& matrix) { return matrix.size(1) < 2 || matrix.stride(1) == 1; }

/// Whether `matrix` has such rows, and the shape, dtype and device of `other`.
inline bool has_dense_rows_like(const at::Tensor& matrix, const at::Tensor& other) {
  return matrix.sizes() == other.sizes() && matrix.scalar_type() == other.scalar_type() &&
         matrix.device() == other.device() && rows_are_dense(matrix);
}

/// Whether each row of a matrix on a GPU, or dry for one, begins at a multiple of 16 bytes.
inline bool rows_are_aligned(const at::Tensor& matrix) {
  return is_aligned(matrix) &&
         (matrix.size(0) < 2 ||
          matrix.stride(0) * static_cast<std::int64_t>(matrix.element_size()) % 16 == 0);
}

/// Frozen parameters as kernels read them beside x: in fp32 or x's type, to which those of a third type, like
/// bf16 beside fp32, are not rounded but widened. Undefined ones stay so.
inline at::Tensor readable_beside(const at::Tensor& x, const at::Tensor& parameters) {
  if (!parameters.defined() || parameters.scalar_type() == x.scalar_type()) return parameters;
  return parameters.to(at::kFloat);
}

}  // namespace lorikeet::ops
