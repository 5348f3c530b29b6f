#include "nn/experts_beside_mlp.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "base/error.h"

namespace lorikeet::nn {
namespace {

const ExpertsSpec& checked(const ExpertsSpec& spec) {
  if (spec.branch_norms && spec.shared && spec.shared->gate.empty()) return spec;
  throw Error("[" + spec.prefix + "] expected norms of branches beside a shared expert without a gate");
}

NormSpec norm_spec(const ExpertsSpec& spec, const std::string& name) {
  return {name, spec.hidden_size, spec.branch_norms->eps};
}

// From `dy`, the gradient of the norm's result (undefined for none), that of its input, plus `dx`. `x`,
// unless it is null, gets the norm's result once more.
at::Tensor through(const Norm& norm, const at::Tensor& dy, const at::Tensor& dx, const NormKept& kept,
                   at::Tensor* x) {
  if (dy.defined()) return norm.backward(dy, dx, kept, x);
  if (x != nullptr) *x = norm.again(kept);
  return dx;
}

}  // namespace

// Members are declared in the unit in the order of use.
ExpertsBesideMlp::ExpertsBesideMlp(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : unit_(&unit),
      root_size_(std::sqrt(static_cast<double>(checked(spec).hidden_size))),
      mlp_input_(norm_spec(spec, spec.branch_norms->mlp_input), unit, factory.policy().base_storage),
      mlp_(spec.shared_mlp(), factory, unit),
      mlp_output_(norm_spec(spec, spec.branch_norms->mlp_output), unit, factory.policy().base_storage),
      router_scale_(
          unit.declare({{spec.branch_norms->router_scale, {spec.hidden_size}, factory.policy().statistics}})),
      experts_input_(norm_spec(spec, spec.branch_norms->experts_input), unit, factory.policy().base_storage),
      experts_(spec, factory, unit),
      experts_output_(norm_spec(spec, spec.branch_norms->experts_output), unit,
                      factory.policy().base_storage) {}

ops::NormParameters ExpertsBesideMlp::router_parameters() const {
  return {unit_->tensor(router_scale_) / root_size_, {}};
}

at::Tensor ExpertsBesideMlp::forward(const at::Tensor& x, const UnitLoan& weights,
                                     const ForwardContext& context, FeedForwardKept* kept,
                                     ops::LeftTerms* /*left*/) const {
  if (kept != nullptr) kept->shared.resize(1);
  BranchNormsKept* const norms = kept != nullptr ? &kept->branch_norms : nullptr;
  at::Tensor y = mlp_.forward(mlp_input_.forward(x, norms != nullptr ? &norms->input : nullptr), weights,
                              context, kept != nullptr ? &kept->shared.front() : nullptr, nullptr);
  y = mlp_output_.forward(y, norms != nullptr ? &norms->mlp_output : nullptr);
  const at::Tensor routed_by = ops::norm(x, router_parameters(), experts_input_.options());
  const at::Tensor routed =
      experts_.forward(experts_input_.forward(x, nullptr), routed_by, weights, context, kept);
  return y.add_(experts_output_.forward(routed, norms != nullptr ? &norms->experts_output : nullptr));
}

void ExpertsBesideMlp::up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                                FeedForwardKept& kept) const {
  mlp_.up_again(mlp_input_.forward(x, nullptr), weights, context, kept.shared.front());
  experts_.up_again(experts_input_.forward(x, nullptr), weights, context, kept);
}

FeedForwardGradients ExpertsBesideMlp::backward(const at::Tensor& dy, const UnitLoan& weights,
                                                const ForwardContext& context, FeedForwardKept& kept,
                                                bool input_gradient) const {
  BranchNormsKept norms = std::exchange(kept.branch_norms, {});
  std::vector<FeedForwardKept> of_mlp = std::exchange(kept.shared, {});
  FeedForwardGradients gradients;
  at::Tensor x;
  if (input_gradient || mlp_.learns()) {
    FeedForwardGradients own =
        mlp_.backward(mlp_output_.backward(dy, {}, std::exchange(norms.mlp_output, {})), weights, context,
                      of_mlp.front(), input_gradient);
    gradients.dx =
        through(mlp_input_, std::exchange(own.dx, {}), {}, norms.input, own.want_input() ? &x : nullptr);
    if (own.want_input()) mlp_.add_a_gradients(own, std::exchange(x, {}), context);
  }
  of_mlp.clear();
  if (!input_gradient && !experts_.learns()) return gradients;
  at::Tensor of_router;
  FeedForwardGradients own =
      experts_.backward(experts_output_.backward(dy, {}, std::exchange(norms.experts_output, {})), weights,
                        context, kept, input_gradient, of_router);
  gradients.dx = through(experts_input_, std::exchange(own.dx, {}), gradients.dx, norms.input,
                         own.want_input() ? &x : nullptr);
  if (own.want_input()) experts_.add_a_gradients(own, std::exchange(x, {}), context);
  if (!input_gradient) return gradients;
  gradients.dx = ops::norm_backward(of_router, gradients.dx, norms.input.input, router_parameters(),
                                    experts_input_.options(), norms.input.statistics);
  return gradients;
}

}  // namespace lorikeet::nn
