#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/reference_backward.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "sigmoid_gate";

void check_input(const at::Tensor& x, const at::Tensor& gate) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && x.is_contiguous(), kOp,
               "a dense floating matrix", x);
  check_tensor(gate.defined() && gate.sizes() == x.sizes() && gate.scalar_type() == x.scalar_type(), kOp,
               "a gate of the input's shape and type", gate);
}

}  // namespace

at::Tensor sigmoid_gate(const at::Tensor& x, const at::Tensor& gate) {
  check_input(x, gate);
  return reference::sigmoid_gate(x, gate);
}

void sigmoid_gate_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& dgate, at::Tensor* y) {
  check_input(x, gate);
  check_tensor(dy.sizes() == x.sizes() && dy.is_contiguous(), kOp, "a dense gradient of the result", dy);
  check_tensor(dgate.sizes() == x.sizes(), kOp, "a matrix for the gate's gradient", dgate);
  if (y != nullptr) *y = reference::sigmoid_gate(x, gate);
  const std::int64_t width = x.size(1);
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::sigmoid_gate(leaf.narrow(1, 0, width), leaf.slice(1, width));
      },
      at::cat({x, gate}, 1), dy);
  dy.copy_(both.narrow(1, 0, width));
  dgate.copy_(both.slice(1, width));
}

}  // namespace lorikeet::ops
