#include "nn/checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>
#include <utility>

namespace lorikeet::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layer : torch::CustomClassHolder {
  std::function<Hidden(Hidden)> run;
};

variable_list outputs_of(const Hidden& hidden) {
  // An autograd function can't return an undefined tensor: a stream without delta comes back as its sum
  // alone.
  if (!hidden.delta.defined()) return {hidden.residual};
  return {hidden.residual, hidden.delta};
}

class Checkpointed : public torch::autograd::Function<Checkpointed> {
 public:
  // The delta is optional: autograd takes every plain tensor argument for one that exists.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& residual,
                               const std::optional<at::Tensor>& delta, const at::Tensor& /*anchor*/,
                               const c10::intrusive_ptr<Layer>& layer) {
    ctx->save_for_backward({residual, delta.value_or(at::Tensor())});
    ctx->saved_data["layer"] = c10::IValue::make_capsule(layer);
    const at::NoGradGuard no_grad;
    return outputs_of(layer->run({residual, delta.value_or(at::Tensor())}));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grad_outputs) {
    const auto saved = ctx->get_saved_variables();
    const auto layer = c10::static_intrusive_pointer_cast<Layer>(ctx->saved_data["layer"].toCapsule());
    variable_list inputs;
    for (std::size_t i = 0; i < 2; ++i) {
      at::Tensor input = saved[i].defined() ? saved[i].detach() : at::Tensor();
      if (input.defined()) input.requires_grad_(needs_grad(ctx, saved, i));
      inputs.push_back(std::move(input));
    }
    variable_list outputs;
    {
      const at::AutoGradMode grad(true);
      outputs = outputs_of(layer->run({inputs[0], inputs[1]}));
    }
    variable_list roots, gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !grad_outputs[i].defined()) continue;
      roots.push_back(outputs[i]);
      gradients.push_back(grad_outputs[i]);
    }
    torch::autograd::backward(roots, gradients);
    const auto gradient_of = [&](std::size_t i) {
      return needs_grad(ctx, saved, i) ? inputs[i].grad() : at::Tensor();
    };
    return {gradient_of(0), gradient_of(1), at::Tensor(), at::Tensor()};
  }

 private:
  // An absent delta has no edge of its own: its index would ask about the anchor.
  static bool needs_grad(AutogradContext* ctx, const variable_list& saved, std::size_t i) {
    return saved[i].defined() && ctx->needs_input_grad(i);
  }
};

}  // namespace

Hidden checkpointed(std::function<Hidden(Hidden)> layer, const Hidden& input, const at::Tensor& anchor) {
  auto holder = c10::make_intrusive<Layer>();
  holder->run = std::move(layer);
  const auto delta = input.delta.defined() ? std::optional<at::Tensor>(input.delta) : std::nullopt;
  const variable_list outputs = Checkpointed::apply(input.residual, delta, anchor, holder);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : at::Tensor()};
}

}  // namespace lorikeet::nn
