#include "ops/norm_of_gated/norm_of_gated.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/reference_backward.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "norm_of_gated";

void check_input(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, std::int64_t groups) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && x.is_contiguous() && groups > 0 &&
                   x.size(1) > 0 && x.size(1) % groups == 0,
               kOp, "a dense floating matrix of whole groups", x);
  check_tensor(z.defined() && z.sizes() == x.sizes() && z.scalar_type() == x.scalar_type(), kOp,
               "a gate of the input's shape and type", z);
  check_tensor(weight.defined() && weight.dim() == 1 && weight.numel() == x.size(1), kOp,
               "a weight [groups * group]", weight);
}

}  // namespace

at::Tensor norm_of_gated(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                         std::int64_t groups, double eps) {
  check_input(x, z, weight, groups);
  return reference::norm_of_gated(x, z, weight, groups, eps);
}

void norm_of_gated_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                             const at::Tensor& weight, std::int64_t groups, double eps, const at::Tensor& dz,
                             at::Tensor* y) {
  check_input(x, z, weight, groups);
  check_tensor(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type() && dy.is_contiguous(), kOp,
               "a dense gradient of the result, of its type", dy);
  check_tensor(dz.sizes() == x.sizes() && dz.scalar_type() == x.scalar_type(), kOp,
               "a matrix for the gate's gradient", dz);
  if (y != nullptr) *y = reference::norm_of_gated(x, z, weight, groups, eps);
  const std::int64_t width = x.size(1);
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::norm_of_gated(leaf.narrow(1, 0, width), leaf.slice(1, width), weight, groups, eps);
      },
      at::cat({x, z}, 1), dy);
  dy.copy_(both.narrow(1, 0, width));
  dz.copy_(both.slice(1, width));
}

}  // namespace lorikeet::ops
