#include "nn/norm.h"

#include <ATen/TensorOperators.h>

#include <tuple>

#include "ops/rms_norm/rms_norm.h"

namespace lorikeet::nn {

at::Tensor Hidden::value() const { return delta.defined() ? residual + delta : residual; }

Norm::Norm(const NormSpec& spec, WeightUnit& unit, DType storage)
    : spec_(spec), unit_(&unit), segment_(unit.declare({{spec.name + ".weight", {spec.size}, storage}})) {}

at::Tensor Norm::forward(const at::Tensor& x) const {
  return ops::rms_norm(x, unit_->tensor(segment_), spec_.eps, spec_.unit_offset);
}

at::Tensor Norm::forward(Hidden& hidden) const {
  if (!hidden.delta.defined()) return forward(hidden.residual);
  at::Tensor normed;
  std::tie(hidden.residual, normed) =
      ops::add_rms_norm(hidden.residual, hidden.delta, unit_->tensor(segment_), spec_.eps, spec_.unit_offset);
  hidden.delta = at::Tensor();
  return normed;
}

}  // namespace lorikeet::nn
