#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lorikeet::ops {

/// Indices [begin, end) of dimension `dim` as a view, or `tensor` itself where these are all of it: views are
/// most of what a pass calls libtorch for (benchmarks/results/host.md).
inline at::Tensor part(const at::Tensor& tensor, std::int64_t dim, std::int64_t begin, std::int64_t end) {
  return begin == 0 && end == tensor.size(dim) ? tensor : tensor.slice(dim, begin, end);
}

}  // namespace lorikeet::ops
