#include "nn/experts.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "nn/output_rows.h"
#include "ops/part.h"
#include "ops/wide.h"

namespace lorikeet::nn {
namespace {

using ops::RowWeights;

ExpertSlice slice(const ExpertsSpec& spec, const char* parameter, std::int64_t expert) {
  const std::string& block = spec.stacks.prefix.empty() ? spec.prefix : spec.stacks.prefix;
  return {.parameter = block + ".experts." + parameter,
          .expert = expert,
          .count = spec.count,
          .only = spec.stacks.only};
}

const ExpertsSpec& checked(const ExpertsSpec& spec) {
  if (spec.router.per_token >= 1 && spec.router.per_token <= spec.count) return spec;
  throw Error("[" + spec.prefix + "] expected from 1 to " + std::to_string(spec.count) +
              " experts a token, as many as there are, got " + std::to_string(spec.router.per_token));
}

}  // namespace

Module ExpertsSpec::router_module() const { return {prefix + "." + names.router, count}; }

std::vector<Module> ExpertsSpec::gate_up_modules(std::int64_t expert) const {
  const std::string of_expert = experts_prefix() + std::to_string(expert) + ".";
  return {{of_expert + names.gate, intermediate_size}, {of_expert + names.up, intermediate_size}};
}

Module ExpertsSpec::down_module(std::int64_t expert) const {
  return {experts_prefix() + std::to_string(expert) + "." + names.down, hidden_size};
}

GroupSpec ExpertsSpec::gate_up_group(std::int64_t expert) const {
  GroupSpec group{.modules = gate_up_modules(expert),
                  .in_features = hidden_size,
                  .bias = bias,
                  .by_name_only = true,
                  .slice = nn::slice(*this, "gate_up_proj", expert)};
  if (stacks.interleaved) group.slice->order = {.groups = intermediate_size, .parts = {1, 1}};
  return group;
}

GroupSpec ExpertsSpec::down_group(std::int64_t expert) const {
  return {.modules = {down_module(expert)},
          .in_features = intermediate_size,
          .bias = bias,
          .by_name_only = true,
          .slice = nn::slice(*this, "down_proj", expert)};
}

MlpSpec ExpertsSpec::shared_mlp() const {
  return {.prefix = prefix + "." + shared->name,
          .hidden_size = hidden_size,
          .intermediate_size = shared->intermediate_size,
          .activation = activation,
          .names = shared->modules,
          .fused_gate_up = shared->fused_gate_up,
          .by_name_only = shared->by_name_only};
}

Module ExpertsSpec::shared_gate_module() const { return {prefix + "." + shared->gate, 1}; }

std::int64_t ExpertsSpec::parameters() const {
  std::int64_t parameters = count * hidden_size + parameters_of(count);
  if (shared)
    parameters += 3 * shared->intermediate_size * hidden_size + (shared->gate.empty() ? 0 : hidden_size);
  return parameters;
}

std::int64_t ExpertsSpec::parameters_of(std::int64_t experts) const {
  return experts * 3 * intermediate_size * hidden_size;
}

Experts::Experts(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : hidden_size_(checked(spec).hidden_size),
      intermediate_size_(spec.intermediate_size),
      options_(spec.router),
      activation_(spec.activation),
      bias_(spec.bias),
      // Which experts a token passes isn't left to a rounded weight where loading quantises.
      router_(factory.frozen_plain({{spec.router_module()}, spec.hidden_size, spec.router_bias}, unit,
                                   spec.wide_router)),
      unit_(&unit),
      wide_router_(spec.wide_router) {
  if (const auto& bias = spec.choice_bias)
    choice_bias_ = unit.declare({{bias->name, bias->shape, factory.policy().statistics}});
  if (!spec.weight_scales.empty())
    weight_scales_ = unit.declare({{spec.weight_scales, {spec.count}, factory.policy().base_storage}});
  std::vector<std::unique_ptr<LinearGroup>> up, down;
  for (std::int64_t e = 0; e < spec.count; ++e) {
    up.push_back(factory.linear(spec.gate_up_group(e), unit));
    down.push_back(factory.linear(spec.down_group(e), unit));
  }
  up_ = LinearStack(std::move(up));
  down_ = LinearStack(std::move(down));
}

at::Tensor Experts::up(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                       const ops::Routing& routing, std::vector<LinearKept>* kept) const {
  at::Tensor up = at::empty({routing.tokens.size(0), 2 * intermediate_size_}, x.options());
  up_.forward(up, ops::spread_rows(x, routing, RowWeights::kNone), weights, context, routing, kept);
  return up;
}

at::Tensor Experts::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                            FeedForwardKept* kept, ops::LeftTerms* /*left*/) const {
  return forward(x, x, weights, context, kept);
}

at::Tensor Experts::forward(const at::Tensor& x, const at::Tensor& routed_by, const UnitLoan& weights,
                            const ForwardContext& context, FeedForwardKept* kept) const {
  at::Tensor logits = this->logits(routed_by, weights);
  ops::Routing routing = ops::route(logits, options_, choice_bias(weights, logits.scalar_type()));
  if (weight_scales_) ops::scale_weights(routing, unit_->tensor(*weight_scales_));
  at::Tensor product;
  {
    at::Tensor up = this->up(x, weights, context, routing, kept != nullptr ? &kept->up_linear : nullptr);
    product = ops::gated_activation(up, activation_);
    if (kept != nullptr) {
      kept->up = std::move(up);
      kept->router_logits = std::move(logits);
    }
  }
  at::Tensor rows = at::empty({product.size(0), hidden_size_}, x.options());
  down_.forward(rows, product, weights, context, routing, kept != nullptr ? &kept->down_linear : nullptr);
  product.reset();
  at::Tensor y = ops::combine_rows(rows, routing, RowWeights::kRouter);
  if (kept != nullptr) kept->routing = std::move(routing);
  return y;
}

void Experts::up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                       FeedForwardKept& kept) const {
  kept.up = up(x, weights, context, kept.routing, &kept.up_linear);
}

at::Tensor Experts::logits(const at::Tensor& routed_by, const UnitLoan& weights) const {
  const at::Tensor x = wide_router_ ? routed_by.to(ops::wide_type(routed_by)) : routed_by;
  return ops::lora_linear(x, router_.weight.of(weights), router_.bias(), {}, std::nullopt);
}

at::Tensor Experts::choice_bias(const UnitLoan& weights, at::ScalarType dtype) const {
  if (!choice_bias_) return {};
  // A row [1, experts] is a matrix, which is borrowed as others are.
  const WeightSegment& segment = unit_->segments().at(*choice_bias_);
  if (!segment.is_matrix()) return unit_->tensor(*choice_bias_);
  return weights.matrix(*choice_bias_, 1, segment.shape.back()).dense(dtype).flatten();
}

at::Tensor Experts::of_output_biases(const at::Tensor& dy, const ops::Routing& routing) const {
  const at::Tensor products = ops::lora_linear(dy, ops::frozen_matrix(down_.biases()), {}, {}, std::nullopt);
  return products.gather(1, routing.experts).to(routing.weights.scalar_type()).mul_(routing.weights);
}

at::Tensor Experts::through_router(const at::Tensor& weighted_gradient, const at::Tensor& logits,
                                   const UnitLoan& weights, const ops::Routing& routing) const {
  const at::Tensor gradient = ops::route_backward(weighted_gradient, logits, routing, options_);
  return ops::lora_linear_backward(gradient, {}, router_.weight.of(weights), {}, std::nullopt,
                                   /*input_gradient=*/true)
      .dx;
}

FeedForwardGradients Experts::backward(const at::Tensor& dy, const UnitLoan& weights,
                                       const ForwardContext& context, FeedForwardKept& kept,
                                       bool input_gradient) const {
  at::Tensor of_router;
  FeedForwardGradients gradients = backward(dy, weights, context, kept, input_gradient, of_router);
  if (input_gradient) gradients.dx.add_(of_router);
  return gradients;
}

FeedForwardGradients Experts::backward(const at::Tensor& dy, const UnitLoan& weights,
                                       const ForwardContext& context, FeedForwardKept& kept,
                                       bool input_gradient, at::Tensor& of_router) const {
  FeedForwardGradients gradients;
  if (!input_gradient && !learns()) return gradients;
  gradients.routing = std::exchange(kept.routing, {});
  const ops::Routing& routing = gradients.routing;
  at::Tensor up = std::move(kept.up), weighted_gradient;
  {
    at::Tensor d_product = at::empty({up.size(0), intermediate_size_}, dy.options());
    const auto down = down_.backward(d_product, ops::spread_rows(dy, routing, RowWeights::kRouter), weights,
                                     context, routing, kept.down_linear);
    // The gradient is written over what was kept; the product comes from the same pass.
    at::Tensor product;
    ops::gated_activation_backward_(d_product, up, activation_, &product);
    down_.add_a_gradients(down, product, context, routing);
    kept.down_linear.clear();
    // That of a row's weight, times the weight, is the product of the row and its gradient.
    if (input_gradient) weighted_gradient = ops::of_places(ops::row_products(d_product, product), routing);
    if (input_gradient && bias_) weighted_gradient.add_(of_output_biases(dy, routing));
  }
  at::Tensor rows;
  if (input_gradient) rows = at::empty({up.size(0), hidden_size_}, dy.options());
  gradients.experts = up_.backward(rows, up, weights, context, routing, kept.up_linear);
  up.reset();
  if (!input_gradient) return gradients;
  gradients.dx = ops::combine_rows(rows, routing, RowWeights::kNone);
  rows.reset();
  of_router = through_router(weighted_gradient, std::exchange(kept.router_logits, {}), weights, routing);
  return gradients;
}

void Experts::add_a_gradients(const FeedForwardGradients& gradients, const at::Tensor& x,
                              const ForwardContext& context) const {
  if (!gradients.experts.want_input()) return;
  up_.add_a_gradients(gradients.experts, ops::spread_rows(x, gradients.routing, RowWeights::kNone), context,
                      gradients.routing);
}

}  // namespace lorikeet::nn
