#include "ops/gated_norm/gated_norm.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/reference_backward.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "gated_norm";

void check_input(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight) {
  check_tensor(weight.defined() && weight.dim() == 1 && weight.numel() > 0, kOp, "a weight [head]", weight);
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && x.is_contiguous() &&
                   x.size(1) % weight.numel() == 0,
               kOp, "a dense floating matrix of whole heads", x);
  check_tensor(z.defined() && z.sizes() == x.sizes() && z.scalar_type() == x.scalar_type(), kOp,
               "a gate of the input's shape and type", z);
}

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps) {
  check_input(x, z, weight);
  return reference::gated_norm(x, z, weight, eps);
}

void gated_norm_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& z,
                          const at::Tensor& weight, double eps, const at::Tensor& dz, at::Tensor* y) {
  check_input(x, z, weight);
  check_tensor(dy.sizes() == x.sizes() && dy.is_contiguous(), kOp, "a dense gradient of the result", dy);
  check_tensor(dz.sizes() == x.sizes(), kOp, "a matrix for the gate's gradient", dz);
  if (y != nullptr) *y = reference::gated_norm(x, z, weight, eps);
  const std::int64_t width = x.size(1);
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::gated_norm(leaf.narrow(1, 0, width), leaf.slice(1, width), weight, eps);
      },
      at::cat({x, z}, 1), dy);
  dy.copy_(both.narrow(1, 0, width));
  dz.copy_(both.slice(1, width));
}

}  // namespace lorikeet::ops
