#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "ops/check.h"
#include "ops/gated_mlp/cpu.h"
#include "ops/gated_mlp/gated_mlp.h"
#include "ops/node.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Keeps gate_up; the activation is computed again.
class GatedBackward : public torch::autograd::Node {
 public:
  std::string name() const override { return "GatedActivationBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    const at::NoGradGuard no_grad;
    const auto input = gate_up.unpack(shared_from_this());
    auto grad = at::empty(input.sizes(), input.options().requires_grad(false));
    cpu::gated_backward(grads[0].contiguous(), input, activation, grad);
    return {grad};
  }

  void release_variables() override { gate_up.reset_data(); }

  SavedVariable gate_up;
  Activation activation = Activation::kSilu;
};

}  // namespace

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  check_tensor(
      gate_up.defined() && gate_up.dim() == 2 && gate_up.size(1) % 2 == 0 && gate_up.is_floating_point(),
      "gated_activation", "a floating matrix [tokens, gate | up]", gate_up);
  if (!vector::is_fast(gate_up)) return reference::gated_activation(gate_up, activation);
  auto out = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options().requires_grad(false));
  cpu::gated_forward(gate_up, activation, out);
  if (needs_graph(gate_up)) {
    auto node = make_node<GatedBackward>(gate_up);
    node->gate_up = SavedVariable(gate_up, /*is_output=*/false);
    node->activation = activation;
    torch::autograd::set_history(out, node);
  }
  return out;
}

}  // namespace lorikeet::ops
