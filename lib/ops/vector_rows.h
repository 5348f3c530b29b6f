#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/vector.h"

// What vector.h's kernels that go over the rows of matrices share.
namespace lorikeet::ops::vector {

/// The sum over i in [0, n) of f(i), in kLanes partial sums.
template <typename F>
LORIKEET_INLINE float sum_of(std::int64_t n, F f) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  }
  float total = 0;
  for (; i < n; ++i) total += f(i);
  for (const float lane : lanes) total += lane;
  return total;
}

/// The rows from `begin` on of a matrix for which has_fast_elements holds, or null for an undefined one.
template <typename T>
T* rows_from(const at::Tensor& matrix, std::int64_t begin) {
  return matrix.defined() ? data<T>(matrix) + begin * matrix.stride(0) : nullptr;
}

}  // namespace lorikeet::ops::vector
