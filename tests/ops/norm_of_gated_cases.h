#pragma once

#include "ops/gated_pair.h"
#include "ops/norm_of_gated/norm_of_gated.h"

namespace lorikeet::test {

inline GatedOperator norm_of_gated_with(const at::Tensor& weight, std::int64_t groups, double eps) {
  return {
      [=](const at::Tensor& x, const at::Tensor& z) { return ops::norm_of_gated(x, z, weight, groups, eps); },
      [=](const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z, const at::Tensor& dz,
          at::Tensor* y) { ops::norm_of_gated_backward_(dy, x, z, weight, groups, eps, dz, y); }};
}

}  // namespace lorikeet::test
