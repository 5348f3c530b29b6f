#include "nn/mlp.h"

#include <utility>

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
  up_ = factory.linear({spec.gate_up_modules(), spec.hidden_size, spec.bias, spec.by_name_only}, unit);
  down_ = factory.linear({{spec.down_module()}, spec.intermediate_size, spec.bias, spec.by_name_only}, unit);
}

at::Tensor Mlp::activated(const at::Tensor& up, const std::vector<ops::LowRankTerm>& terms) const {
  return gated_ ? ops::gated_activation(up, activation_, terms) : ops::activation(up, activation_);
}

at::Tensor Mlp::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                        FeedForwardKept* kept, ops::LeftTerms* left) const {
  if (kept != nullptr) {
    kept->up_linear.resize(1);
    kept->down_linear.resize(1);
  }
  at::Tensor product;
  {
    ops::LeftTerms of_up(ops::gated_activation_adds);
    const at::Tensor up = up_->forward(
        x, weights, context, kept != nullptr ? &kept->up_linear.front() : nullptr, gated_ ? &of_up : nullptr);
    product = activated(up, of_up.terms);
    if (kept != nullptr) kept->up = up;
  }
  return down_->forward(product, weights, context, kept != nullptr ? &kept->down_linear.front() : nullptr,
                        left);
}

void Mlp::up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                   FeedForwardKept& kept) const {
  ops::LeftTerms left(ops::gated_activation_adds);
  kept.up_linear.resize(1);
  kept.up = up_->forward(x, weights, context, &kept.up_linear.front(), gated_ ? &left : nullptr);
}

FeedForwardGradients Mlp::backward(const at::Tensor& dy, const UnitLoan& weights,
                                   const ForwardContext& context, FeedForwardKept& kept,
                                   bool input_gradient) const {
  return backward(dy, weights, context, kept, input_gradient, nullptr);
}

FeedForwardGradients Mlp::backward(const at::Tensor& dy, const UnitLoan& weights,
                                   const ForwardContext& context, FeedForwardKept& kept, bool input_gradient,
                                   at::Tensor* row_products) const {
  const bool through_activation = input_gradient || up_->learns() || row_products != nullptr;
  at::Tensor up = std::move(kept.up);
  {
    ops::LeftTerms left(ops::gated_activation_backward_adds);
    ops::LoraLinearGradients down =
        down_->backward(dy, weights, context, kept.down_linear.front(), through_activation,
                        gated_ && row_products == nullptr ? &left : nullptr);
    const auto terms = up_->left_terms(kept.up_linear.front());
    const bool sums = ops::gated_activation_backward_sums(down.dx, left.terms, left.right_gradient);
    at::Tensor product;
    const bool adds = down.want_input() && !sums;
    at::Tensor* const again = adds || row_products != nullptr ? &product : nullptr;
    if (!through_activation) {
      if (again != nullptr) down_->add_a_gradients(down, activated(up, terms), context);
      return {};
    }
    // The gradient is written over what was kept; the product, or its part of down's gradients, comes from
    // the same pass.
    if (gated_) {
      ops::gated_activation_backward_(down.dx, up, activation_, again, terms, left.terms,
                                      sums ? left.right_gradient : at::Tensor());
    } else {
      ops::activation_backward_(down.dx, up, activation_, again);
    }
    // dy (down x) = (down^T dy) x.
    if (row_products != nullptr) *row_products = ops::row_products(down.dx, product);
    down.dx.reset();
    if (adds) down_->add_a_gradients(down, product, context);
    if (sums) ops::a_gradients_added(down);
  }
  FeedForwardGradients gradients;
  gradients.up = up_->backward(up, weights, context, kept.up_linear.front(), input_gradient);
  gradients.dx = std::exchange(gradients.up.dx, {});
  return gradients;
}

}  // namespace lorikeet::nn
