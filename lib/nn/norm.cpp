#include "nn/norm.h"

#include <ATen/TensorOperators.h>

namespace lorikeet::nn {

at::Tensor Hidden::value() const {
  if (!delta.defined()) return residual;
  at::Tensor sum = residual + delta;
  if (!terms.empty()) ops::matmul_add_terms(sum, terms, {});
  return sum;
}

Norm::Norm(const NormSpec& spec, WeightUnit& unit, DType storage)
    : options_{.kind = spec.kind, .eps = spec.eps, .unit_offset = spec.unit_offset},
      unit_(&unit),
      weight_(unit.declare({{spec.name + ".weight", {spec.size}, storage}})) {
  if (spec.bias) bias_ = unit.declare({{spec.name + ".bias", {spec.size}, storage}});
}

ops::NormParameters Norm::parameters() const {
  return {unit_->tensor(weight_), bias_ ? unit_->tensor(*bias_) : at::Tensor()};
}

at::Tensor Norm::forward(const at::Tensor& x, NormKept* kept) const {
  if (kept == nullptr) return ops::norm(x, parameters(), options_);
  kept->input = x;
  return ops::norm(x, parameters(), options_, &kept->statistics);
}

at::Tensor Norm::forward(Hidden& hidden, NormKept* kept) const {
  if (!hidden.delta.defined()) return forward(hidden.residual, kept);
  at::Tensor sum;
  at::Tensor normed = ops::add_norm(hidden.residual, hidden.delta, parameters(), options_, sum,
                                    kept != nullptr ? &kept->statistics : nullptr, hidden.terms);
  hidden = {std::move(sum), {}};
  if (kept != nullptr) kept->input = hidden.residual;
  return normed;
}

at::Tensor Norm::again(const NormKept& kept) const { return ops::norm(kept.input, parameters(), options_); }

at::Tensor Norm::backward(const at::Tensor& dy, const at::Tensor& extra, const NormKept& kept,
                          at::Tensor* again) const {
  return ops::norm_backward(dy, extra, kept.input, parameters(), options_, kept.statistics, again);
}

}  // namespace lorikeet::nn
