#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace lorikeet::test {

/// How far a fused operator may stand from its fp64 reference: the largest difference as a share of the
/// reference's largest value. `why` says what the number is made of.
struct Tolerance {
  at::ScalarType dtype;
  double forward, backward;
  const char* why;
};

/// max |value - expected| / max |expected|; infinite for another shape or a value that isn't finite.
inline double relative_distance(const at::Tensor& value, const at::Tensor& expected) {
  if (!value.defined() || value.sizes() != expected.sizes()) return std::numeric_limits<double>::infinity();
  if (value.numel() == 0) return 0;
  const auto wide = value.detach().to(at::kDouble);
  if (!at::isfinite(wide).all().item<bool>()) return std::numeric_limits<double>::infinity();
  const auto scale = expected.detach().to(at::kDouble).abs().max().item<double>();
  return (wide - expected.detach().to(at::kDouble)).abs().max().item<double>() / std::max(scale, 1e-30);
}

}  // namespace lorikeet::test
