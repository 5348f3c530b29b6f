#include "ops/activation/activation.h"

#include <ATen/ATen.h>

#include "ops/activation/cpu.h"
#include "ops/check.h"
#include "ops/reference_backward.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

// `parts`: 2 where rows are [gate | up], else 1.
void check_input(const char* op, const at::Tensor& x, int parts) {
  check_tensor(x.defined() && x.dim() == 2 && x.size(1) % parts == 0 && x.is_floating_point(), op,
               parts == 2 ? "a floating matrix [tokens, gate | up]" : "a floating matrix [tokens, width]", x);
}

void check_gradient(const char* op, const at::Tensor& dy, const at::Tensor& x, int parts) {
  check_input(op, x, parts);
  check(dy.defined() && dy.dim() == 2 && dy.size(0) == x.size(0) && dy.size(1) * parts == x.size(1) &&
            dy.scalar_type() == x.scalar_type(),
        op, "a gradient of the result's shape and dtype",
        [&] { return describe(dy) + " for " + describe(x); });
}

}  // namespace

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  check_input("gated_activation", gate_up, 2);
  if (!vector::is_fast(gate_up)) return reference::gated_activation(gate_up, activation);
  auto out = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
  cpu::gated_forward(gate_up, activation, out);
  return out;
}

void gated_activation_backward_(const at::Tensor& dy, at::Tensor& gate_up, Activation activation) {
  check_gradient("gated_activation", dy, gate_up, 2);
  if (vector::is_fast(gate_up)) {
    cpu::gated_backward(dy.contiguous(), activation, gate_up);
  } else {
    gate_up.copy_(reference_backward(
        [&](const at::Tensor& x) { return reference::gated_activation(x, activation); }, gate_up, dy));
  }
}

at::Tensor activation(const at::Tensor& x, Activation activation) {
  check_input("activation", x, 1);
  if (!vector::is_fast(x)) return reference::activation(x, activation);
  auto out = at::empty(x.sizes(), x.options());
  cpu::plain_forward(x, activation, out);
  return out;
}

void activation_backward_(const at::Tensor& dy, at::Tensor& x, Activation activation) {
  check_gradient("activation", dy, x, 1);
  if (vector::is_fast(x)) {
    cpu::plain_backward(dy.contiguous(), activation, x);
  } else {
    x.copy_(reference_backward(
        [&](const at::Tensor& input) { return reference::activation(input, activation); }, x, dy));
  }
}

}  // namespace lorikeet::ops
