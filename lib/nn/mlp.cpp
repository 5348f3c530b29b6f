#include "nn/mlp.h"

namespace lorikeet::nn {

std::vector<Module> MlpSpec::gate_up_modules() const {
  const Module up{prefix + "." + names.up, intermediate_size};
  if (!gated) return {up};
  if (!fused_gate_up) return {{prefix + "." + names.gate, intermediate_size}, up};
  const RowOrder order{fused_gate_up->row_groups, {1, 1}, fused_gate_up->per_group(intermediate_size)};
  return {{prefix + "." + fused_gate_up->name, 2 * intermediate_size, order}};
}

Module MlpSpec::down_module() const { return {prefix + "." + names.down, hidden_size}; }

Mlp::Mlp(const MlpSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : gated_(spec.gated), activation_(spec.activation) {
  up_ = factory.linear({spec.gate_up_modules(), spec.hidden_size, spec.bias}, unit);
  down_ = factory.linear({{spec.down_module()}, spec.intermediate_size, spec.bias}, unit);
}

at::Tensor Mlp::activated(const at::Tensor& up) const {
  return gated_ ? ops::gated_activation(up, activation_) : ops::activation(up, activation_);
}

at::Tensor Mlp::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                        MlpKept* kept) const {
  at::Tensor product;
  {
    const at::Tensor up = up_->forward(x, weights, context, kept != nullptr ? &kept->up_linear : nullptr);
    product = activated(up);
    if (kept != nullptr) kept->up = up;
  }
  return down_->forward(product, weights, context, kept != nullptr ? &kept->down_linear : nullptr);
}

at::Tensor Mlp::backward(const at::Tensor& dy, const InputAgain& input, const UnitLoan& weights,
                         const ForwardContext& context, MlpKept& kept, bool input_gradient) const {
  const bool through_activation = input_gradient || up_->learns();
  if (!kept.up.defined()) kept.up = up_->forward(input({}), weights, context, &kept.up_linear);
  // The gradient is written over what was kept, once nobody reads that any more; the product, where down's
  // gradients need it, comes from the same pass.
  at::Tensor dup = std::move(kept.up);
  const auto write_gradient = [&](const at::Tensor& dproduct, at::Tensor* product) {
    if (gated_) {
      ops::gated_activation_backward_(dproduct, dup, activation_, product);
    } else {
      ops::activation_backward_(dproduct, dup, activation_, product);
    }
  };
  {
    bool written = false;
    const auto product_again = [&](const at::Tensor& dproduct) {
      if (!dproduct.defined()) return activated(dup);
      at::Tensor product;
      write_gradient(dproduct, &product);
      written = true;
      return product;
    };
    const at::Tensor dproduct =
        down_->backward(dy, product_again, weights, context, kept.down_linear, through_activation);
    if (!through_activation) return {};
    if (!written) write_gradient(dproduct, nullptr);
  }
  return up_->backward(dup, input, weights, context, kept.up_linear, input_gradient);
}

}  // namespace lorikeet::nn
