#include "nn/layer_inputs.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "nn/batch.h"
#include "nn/frozen_embedding.h"
#include "nn/output_rows.h"
#include "nn/pass_state.h"

namespace lorikeet::nn {
namespace {

constexpr double kSumScale = 1 / std::numbers::sqrt2;

// A tensor, since mul_ with a number rounds it to the tensor's dtype on a CPU.
void multiply_(at::Tensor& x, double factor) { x.mul_(c10::scalar_to_tensor(factor)); }

}  // namespace

LayerInputs::LayerInputs(const LayerInputsSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : unit_(&unit),
      width_(spec.width()),
      projection_scale_(1 / std::sqrt(static_cast<double>(spec.hidden_size))),
      table_(std::make_unique<FrozenEmbedding>(
          EmbeddingSpec{.name = spec.table,
                        .scale = std::sqrt(static_cast<double>(spec.width())),
                        .scale_rounded = true},
          declare_matrix(spec.table + ".weight", spec.vocab_size, spec.layers * spec.width(), unit,
                         factory.policy()),
          factory.policy())),
      projection_(factory.linear(spec.projection_group(), unit)),
      norm_(spec.norm, unit, factory.policy().base_storage) {}

at::Tensor LayerInputs::forward(const at::Tensor& embedded, const UnitLoan& weights,
                                const ForwardContext& context, LayerInputsKept* kept) const {
  at::Tensor projected =
      projection_->forward(embedded, weights, context, kept != nullptr ? &kept->projection : nullptr);
  multiply_(projected, projection_scale_);
  at::Tensor inputs = norm_.forward(projected.view({-1, width_}), kept != nullptr ? &kept->norm : nullptr)
                          .view(projected.sizes());
  inputs.add_(table_->forward(context.batch, weights, nullptr));
  multiply_(inputs, kSumScale);
  if (kept != nullptr) kept->embedded = embedded;
  return inputs;
}

at::Tensor LayerInputs::backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                 const LayerInputsKept& kept, bool input_gradient) const {
  at::Tensor gradient = dy * c10::scalar_to_tensor(kSumScale);
  gradient = norm_.backward(gradient.view({-1, width_}), {}, kept.norm).view(dy.sizes());
  multiply_(gradient, projection_scale_);
  ops::LoraLinearGradients own =
      projection_->backward(gradient, weights, context, kept.projection, input_gradient);
  if (own.want_input()) projection_->add_a_gradients(own, kept.embedded, context);
  return own.dx;
}

LayerInput::LayerInput(const LayerInputSpec& spec, std::int64_t layer, LinearFactory& factory,
                       WeightUnit& unit)
    : layer_(layer),
      width_(spec.width),
      activation_(spec.activation),
      gate_(factory.linear(spec.gate_group(), unit)),
      projection_(factory.linear(spec.projection_group(), unit)),
      norm_(spec.norm, unit, factory.policy().base_storage) {}

at::Tensor LayerInput::gate_and_input(const at::Tensor& gate, const ForwardContext& context) const {
  return at::cat({gate, read_rows(own(context.pass->layer_inputs), context)}, 1);
}

at::Tensor LayerInput::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                               LayerInputKept* kept) const {
  const ForwardContext rows = behind_attention(context);
  at::Tensor gate = gate_->forward(x, weights, rows, kept != nullptr ? &kept->gate_linear : nullptr);
  const at::Tensor product = ops::gated_activation(gate_and_input(gate, context), activation_);
  const at::Tensor y =
      projection_->forward(product, weights, rows, kept != nullptr ? &kept->projection_linear : nullptr);
  if (kept != nullptr) {
    if (gate_->learns()) kept->x = x;
    kept->gate = std::move(gate);
  }
  return norm_.forward(y, kept != nullptr ? &kept->norm : nullptr);
}

at::Tensor LayerInput::backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                LayerInputKept& kept, bool input_gradient) const {
  const ForwardContext rows = behind_attention(context);
  at::Tensor& wanted = context.pass->layer_input_gradients;
  const bool through_activation = input_gradient || gate_->learns() || wanted.defined();
  ops::LoraLinearGradients of_projection =
      projection_->backward(norm_.backward(dy, {}, std::exchange(kept.norm, {})), weights, rows,
                            kept.projection_linear, through_activation);
  // Its gradient is written over it.
  at::Tensor gate_up = gate_and_input(std::exchange(kept.gate, {}), context);
  at::Tensor product;
  if (through_activation) {
    ops::gated_activation_backward_(of_projection.dx, gate_up, activation_,
                                    of_projection.want_input() ? &product : nullptr);
    of_projection.dx.reset();
  } else if (of_projection.want_input()) {
    product = ops::gated_activation(gate_up, activation_);
  }
  if (of_projection.want_input()) projection_->add_a_gradients(of_projection, product, rows);
  if (!through_activation) return {};
  if (wanted.defined()) own(wanted).copy_(read_rows_backward(gate_up.narrow(1, width_, width_), context));
  if (!input_gradient && !gate_->learns()) return {};
  ops::LoraLinearGradients of_gate = gate_->backward(gate_up.narrow(1, 0, width_).contiguous(), weights, rows,
                                                     kept.gate_linear, input_gradient);
  if (of_gate.want_input()) gate_->add_a_gradients(of_gate, kept.x, rows);
  kept.x.reset();
  return of_gate.dx;
}

}  // namespace lorikeet::nn
