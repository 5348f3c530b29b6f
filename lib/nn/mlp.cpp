#include "nn/mlp.h"

namespace lorikeet::nn {

Mlp::Mlp(const MlpSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : gated_(spec.gated), activation_(spec.activation) {
  std::vector<Projection> projections;
  if (spec.gated) projections.push_back({spec.prefix + "." + spec.names.gate, spec.intermediate_size});
  projections.push_back({spec.prefix + "." + spec.names.up, spec.intermediate_size});
  up_ = factory.linear({.projections = std::move(projections),
                        .in_features = spec.hidden_size,
                        .bias = spec.bias,
                        .role = LinearRole::kColumn},
                       unit);
  down_ = factory.linear({.projections = {{spec.prefix + "." + spec.names.down, spec.hidden_size}},
                          .in_features = spec.intermediate_size,
                          .bias = spec.bias,
                          .role = LinearRole::kRow},
                         unit);
}

at::Tensor Mlp::activated(const at::Tensor& up) const {
  return gated_ ? ops::gated_activation(up, activation_) : ops::activation(up, activation_);
}

at::Tensor Mlp::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                        MlpKept* kept) const {
  at::Tensor product;
  {
    const at::Tensor up = up_->forward(x, weights, context, kept != nullptr ? &kept->up_low_rank : nullptr);
    product = activated(up);
    if (kept != nullptr) kept->up = up;
  }
  return down_->forward(product, weights, context, kept != nullptr ? &kept->down_low_rank : nullptr);
}

at::Tensor Mlp::backward(const at::Tensor& dy, const InputAgain& input, const UnitLoan& weights,
                         const ForwardContext& context, MlpKept& kept, bool input_gradient) const {
  const bool through_activation = input_gradient || up_->learns();
  at::Tensor dup = std::move(kept.up);
  {
    const at::Tensor dproduct = down_->backward(
        dy, [&] { return activated(dup); }, weights, context, kept.down_low_rank, through_activation);
    if (!through_activation) return {};
    // The gradient takes the place of what was kept: nobody reads that any more.
    if (gated_) {
      ops::gated_activation_backward_(dproduct, dup, activation_);
    } else {
      ops::activation_backward_(dproduct, dup, activation_);
    }
  }
  return up_->backward(dup, input, weights, context, kept.up_low_rank, input_gradient);
}

}  // namespace lorikeet::nn
