#include "nn/experts.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "ops/part.h"
#include "ops/take_rows.h"

namespace lorikeet::nn {
namespace {

const ExpertsSpec& checked(const ExpertsSpec& spec) {
  if (spec.router.per_token >= 1 && spec.router.per_token <= spec.count) return spec;
  throw Error("[" + spec.prefix + "] expected from 1 to " + std::to_string(spec.count) +
              " experts a token, as many as there are, got " + std::to_string(spec.router.per_token));
}

// Calls f with each expert that has rows, and which those are.
template <typename F>
void for_each_expert(const ops::Routing& routing, F&& f) {
  for (std::size_t e = 0; e < routing.ends.size(); ++e) {
    if (routing.begin(e) < routing.ends[e]) f(e, routing.begin(e), routing.ends[e]);
  }
}

}  // namespace

Module ExpertsSpec::router_module() const { return {prefix + "." + names.router, count}; }

std::vector<Module> ExpertsSpec::gate_up_modules() const {
  std::vector<Module> modules;
  for (std::int64_t e = 0; e < count; ++e) {
    const std::string expert = prefix + "." + names.experts + "." + std::to_string(e) + ".";
    modules.push_back({expert + names.gate, intermediate_size});
    modules.push_back({expert + names.up, intermediate_size});
  }
  return modules;
}

std::vector<Module> ExpertsSpec::down_modules() const {
  std::vector<Module> modules;
  for (std::int64_t e = 0; e < count; ++e)
    modules.push_back(
        {prefix + "." + names.experts + "." + std::to_string(e) + "." + names.down, hidden_size});
  return modules;
}

std::int64_t ExpertsSpec::parameters() const { return count * hidden_size + parameters_of(count); }

std::int64_t ExpertsSpec::parameters_of(std::int64_t experts) const {
  return experts * 3 * intermediate_size * hidden_size;
}

Experts::Experts(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : options_(checked(spec).router),
      activation_(spec.activation),
      // Its choice isn't left to a quantised weight where loading decides that.
      router_(factory.frozen({{spec.router_module()}, spec.hidden_size}, unit, /*plain=*/true)),
      up_{factory.frozen({spec.gate_up_modules(), spec.hidden_size}, unit), 2, 2 * spec.intermediate_size},
      down_{factory.frozen({spec.down_modules(), spec.intermediate_size}, unit), 1, spec.hidden_size} {}

ops::FrozenMatrix Experts::Matrices::of(const UnitLoan& weights, std::size_t expert) const {
  return weights.matrix(all.segment + expert * segments, rows, all.cols);
}

at::Tensor Experts::up(const at::Tensor& x, const UnitLoan& weights, const ops::Routing& routing) const {
  at::Tensor up = at::empty({routing.tokens.size(0), up_.rows}, x.options());
  const at::Tensor rows = ops::take_rows(x, routing.tokens);
  for_each_expert(routing, [&](std::size_t e, std::int64_t begin, std::int64_t end) {
    const ops::FrozenMatrix matrix = up_.of(weights, e);
    at::Tensor out = ops::part(up, 0, begin, end);
    matrix.format->forward(out, ops::part(rows, 0, begin, end), matrix, {}, {});
  });
  return up;
}

at::Tensor Experts::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& /*context*/,
                            FeedForwardKept* kept, ops::LeftTerms* /*left*/) const {
  at::Tensor logits = ops::lora_linear(x, router_.of(weights), {}, {}, std::nullopt);
  ops::Routing routing = ops::route(logits, options_);
  at::Tensor up = this->up(x, weights, routing);
  at::Tensor product = ops::gated_activation(up, activation_);
  if (kept != nullptr) {
    kept->up = std::move(up);
    kept->router_logits = std::move(logits);
  }
  up.reset();
  at::Tensor rows = at::empty({product.size(0), down_.rows}, x.options());
  for_each_expert(routing, [&](std::size_t e, std::int64_t begin, std::int64_t end) {
    const ops::FrozenMatrix matrix = down_.of(weights, e);
    at::Tensor out = ops::part(rows, 0, begin, end);
    matrix.format->forward(out, ops::part(product, 0, begin, end), matrix, {}, {});
  });
  product.reset();
  at::Tensor y = ops::combine_rows(rows, routing);
  if (kept != nullptr) kept->routing = std::move(routing);
  return y;
}

void Experts::up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& /*context*/,
                       FeedForwardKept& kept) const {
  kept.up = up(x, weights, kept.routing);
}

// A row's weight multiplies the gradient last, where the rows are summed up: on the way to there all is
// linear in it, and its own gradient needs the rows' without it.
ops::LoraLinearGradients Experts::backward(const at::Tensor& dy, const UnitLoan& weights,
                                           const ForwardContext& /*context*/, FeedForwardKept& kept,
                                           bool input_gradient) const {
  if (!input_gradient) return {};
  const ops::Routing routing = std::exchange(kept.routing, {});
  at::Tensor up = std::move(kept.up);
  at::Tensor d_weights;
  {
    at::Tensor d_product = at::empty({up.size(0), up_.rows / 2}, dy.options());
    {
      const at::Tensor rows = ops::take_rows(dy, routing.tokens);
      for_each_expert(routing, [&](std::size_t e, std::int64_t begin, std::int64_t end) {
        const ops::FrozenMatrix matrix = down_.of(weights, e);
        at::Tensor out = ops::part(d_product, 0, begin, end);
        matrix.format->backward(out, ops::part(rows, 0, begin, end), matrix, {});
      });
    }
    at::Tensor product;
    ops::gated_activation_backward_(d_product, up, activation_, &product);
    d_weights = ops::of_places(ops::row_products(d_product, product), routing);
  }
  at::Tensor rows = at::empty({up.size(0), up_.all.cols}, dy.options());
  for_each_expert(routing, [&](std::size_t e, std::int64_t begin, std::int64_t end) {
    const ops::FrozenMatrix matrix = up_.of(weights, e);
    at::Tensor out = ops::part(rows, 0, begin, end);
    matrix.format->backward(out, ops::part(up, 0, begin, end), matrix, {});
  });
  up.reset();
  ops::LoraLinearGradients gradients{.dx = ops::combine_rows(rows, routing), .low_rank = {}};
  rows.reset();
  const at::Tensor d_logits =
      ops::route_backward(d_weights, std::exchange(kept.router_logits, {}), routing, options_);
  const ops::FrozenMatrix router = router_.of(weights);
  at::Tensor by_router = at::empty_like(gradients.dx);
  router.format->backward(by_router, d_logits, router, {});
  gradients.dx.add_(by_router);
  return gradients;
}

}  // namespace lorikeet::nn
