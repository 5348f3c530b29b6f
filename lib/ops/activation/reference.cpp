#include <ATen/ATen.h>

#include "ops/activation/activation.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {
namespace {

at::Tensor activate(const at::Tensor& gate, Activation activation) {
  switch (activation) {
    case Activation::kSilu: return at::silu(gate);
    case Activation::kGeluTanh: return at::gelu(gate, "tanh");
    case Activation::kGelu:
    case Activation::kClampedSwiglu: break;  // the latter is no function of the gate alone
  }
  return at::gelu(gate);
}

at::Tensor clamped_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  // masked_fill has clamp's gradient, and unlike clamp's it can be had in a dry run.
  const auto at_most = [](const at::Tensor& x) { return x.masked_fill(x > kSwigluLimit, kSwigluLimit); };
  const auto g = at_most(gate), below = at_most(up);
  const auto u = below.masked_fill(below < -kSwigluLimit, -kSwigluLimit);
  return (u + 1) * (g * at::sigmoid(g * kSwigluAlpha));
}

}  // namespace

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  const auto halves = gate_up.to(wide_type(gate_up)).chunk(2, 1);
  const auto y = activation == Activation::kClampedSwiglu ? clamped_swiglu(halves[0], halves[1])
                                                          : activate(halves[0], activation) * halves[1];
  return y.to(gate_up.scalar_type());
}

at::Tensor activation(const at::Tensor& x, Activation activation) {
  return activate(x.to(wide_type(x)), activation).to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
