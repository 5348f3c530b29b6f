#include "nn/shared_expert.h"

#include <ATen/ATen.h>

#include <utility>

#include "ops/row_gate/row_gate.h"

namespace lorikeet::nn {

SharedExpert::SharedExpert(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : experts_(spec, factory, unit), mlp_(spec.shared_mlp(), factory, unit) {
  if (!spec.shared->gate.empty())
    gate_ = factory.frozen_plain({{spec.shared_gate_module()}, spec.hidden_size}, unit).weight;
}

at::Tensor SharedExpert::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                                 FeedForwardKept* kept, ops::LeftTerms* /*left*/) const {
  at::Tensor y = experts_.forward(x, weights, context, kept, nullptr);
  if (kept != nullptr) kept->shared.resize(1);
  const at::Tensor own =
      mlp_.forward(x, weights, context, kept != nullptr ? &kept->shared.front() : nullptr, nullptr);
  if (!gate_) return y.add_(own);
  at::Tensor gate = ops::lora_linear(x, gate_->of(weights), {}, {}, std::nullopt);
  ops::add_row_gate_(y, own, gate);
  if (kept != nullptr) kept->shared_gate = std::move(gate);
  return y;
}

void SharedExpert::up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                            FeedForwardKept& kept) const {
  experts_.up_again(x, weights, context, kept);
  mlp_.up_again(x, weights, context, kept.shared.front());
}

FeedForwardGradients SharedExpert::backward(const at::Tensor& dy, const UnitLoan& weights,
                                            const ForwardContext& context, FeedForwardKept& kept,
                                            bool input_gradient) const {
  FeedForwardGradients gradients = experts_.backward(dy, weights, context, kept, input_gradient);
  const at::Tensor gate = std::exchange(kept.shared_gate, {});
  std::vector<FeedForwardKept> own_kept = std::exchange(kept.shared, {});
  if (!input_gradient && !mlp_.learns()) return gradients;
  const bool through_gate = input_gradient && gate_;
  at::Tensor products;
  FeedForwardGradients own =
      mlp_.backward(gate_ ? ops::row_gate(dy, gate) : dy, weights, context, own_kept.front(), input_gradient,
                    through_gate ? &products : nullptr);
  gradients.up = std::move(own.up);
  if (input_gradient) gradients.dx.add_(own.dx);
  own.dx.reset();
  if (through_gate) {
    gradients.dx.add_(ops::lora_linear_backward(ops::row_gate_backward(products, gate), {},
                                                gate_->of(weights), {}, std::nullopt,
                                                /*input_gradient=*/true)
                          .dx);
  }
  return gradients;
}

void SharedExpert::add_a_gradients(const FeedForwardGradients& gradients, const at::Tensor& x,
                                   const ForwardContext& context) const {
  experts_.add_a_gradients(gradients, x, context);
  if (gradients.up.want_input()) mlp_.add_a_gradients(gradients, x, context);
}

}  // namespace lorikeet::nn
