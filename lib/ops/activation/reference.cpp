#include <ATen/ATen.h>

#include "ops/activation/activation.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {
namespace {

at::Tensor activate(const at::Tensor& gate, Activation activation) {
  switch (activation) {
    case Activation::kSilu: return at::silu(gate);
    case Activation::kGeluTanh: return at::gelu(gate, "tanh");
    case Activation::kGelu: break;
  }
  return at::gelu(gate);
}

}  // namespace

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  const auto halves = gate_up.to(wide_type(gate_up)).chunk(2, 1);
  return (activate(halves[0], activation) * halves[1]).to(gate_up.scalar_type());
}

at::Tensor activation(const at::Tensor& x, Activation activation) {
  return activate(x.to(wide_type(x)), activation).to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
