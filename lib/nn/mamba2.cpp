#include "nn/mamba2.h"

#include <ATen/ATen.h>

#include <utility>

#include "nn/batch.h"
#include "nn/kv_cache.h"
#include "nn/output_rows.h"
#include "ops/causal_conv/causal_conv.h"
#include "ops/norm_of_gated/norm_of_gated.h"

namespace lorikeet::nn {

// Tensors are declared in the unit in the order of use.
Mamba2::Mamba2(const Mamba2Spec& spec, std::int64_t layer, LinearFactory& factory, WeightUnit& unit)
    : layer_(layer),
      layout_(spec.layout),
      taps_(spec.taps),
      norm_eps_(spec.norm_eps),
      norm_groups_(spec.norm_groups),
      unit_(&unit) {
  const DType storage = factory.policy().base_storage, statistics = factory.policy().statistics;
  const auto declare = [&](const std::string& name, std::vector<std::int64_t> shape, DType dtype) {
    return unit.declare({{spec.prefix + "." + name, std::move(shape), dtype}});
  };
  in_ = factory.linear(spec.input_group(), unit);
  convolution_ = declare(spec.names.convolution + ".weight", {layout_.width(), 1, taps_}, storage);
  if (spec.convolution_bias)
    convolution_bias_ = declare(spec.names.convolution + ".bias", {layout_.width()}, storage);
  a_log_ = declare(spec.names.a_log, {layout_.heads}, statistics);
  dt_bias_ = declare(spec.names.dt_bias, {layout_.heads}, statistics);
  d_ = declare(spec.names.d, {layout_.heads}, statistics);
  norm_ = declare(spec.names.norm + ".weight", {spec.inner_width()}, storage);
  out_ = factory.linear(spec.output_group(), unit);
}

at::Tensor Mamba2::convolution(const UnitLoan& weights, at::ScalarType dtype) const {
  return weights.matrix(convolution_, layout_.width(), taps_).dense(dtype);
}

at::Tensor Mamba2::convolution_bias() const {
  return convolution_bias_ ? unit_->tensor(*convolution_bias_) : at::Tensor();
}

ops::StateSpaceNumbers Mamba2::numbers() const {
  return {unit_->tensor(a_log_), unit_->tensor(dt_bias_), unit_->tensor(d_)};
}

at::Tensor Mamba2::gate(const at::Tensor& projected) const {
  return projected.narrow(1, 0, layout_.b_begin());
}

at::Tensor Mamba2::before_convolution(const at::Tensor& projected) const {
  return projected.narrow(1, layout_.b_begin(), layout_.width());
}

at::Tensor Mamba2::steps(const at::Tensor& projected) const {
  return projected.slice(1, layout_.b_begin() + layout_.width());
}

at::Tensor Mamba2::normed(const at::Tensor& out, const at::Tensor& projected) const {
  return ops::norm_of_gated(out, gate(projected), unit_->tensor(norm_), norm_groups_, norm_eps_);
}

at::Tensor Mamba2::convolved(const at::Tensor& projected, const UnitLoan& weights,
                             const ForwardContext& context) const {
  return ops::causal_conv(before_convolution(projected), convolution(weights, projected.scalar_type()),
                          context.batch.sequences, {}, convolution_bias());
}

at::Tensor Mamba2::cached(const at::Tensor& projected, const UnitLoan& weights,
                          const ForwardContext& context) const {
  const ops::Sequences& sequences = context.batch.sequences;
  const at::Tensor rows = before_convolution(projected);
  const std::vector<RecurrentState*> states = context.cache->recurrent(layer_);
  std::vector<at::Tensor> before, rule;
  for (std::size_t s = 0; s < states.size(); ++s) {
    const std::int64_t begin = sequences.cu_seqlens[s], count = sequences.cu_seqlens[s + 1] - begin;
    before.push_back(states[s]->move_on(rows.narrow(0, begin, count), taps_ - 1));
    rule.push_back(states[s]->rule);
  }
  const at::Tensor xbc = ops::causal_conv(rows, convolution(weights, rows.scalar_type()), sequences,
                                          at::stack(before), convolution_bias());
  at::Tensor out = ops::state_space(xbc, steps(projected), numbers(), layout_, sequences, &rule);
  for (std::size_t s = 0; s < states.size(); ++s) states[s]->rule = std::move(rule[s]);
  return out;
}

at::Tensor Mamba2::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                           TokenMixerKept* kept, ops::LeftTerms* left) const {
  at::Tensor projected = in_->forward(x, weights, context, kept != nullptr ? &kept->in_linear : nullptr);
  at::Tensor out = context.cache != nullptr
                       ? cached(projected, weights, context)
                       : ops::state_space(convolved(projected, weights, context), steps(projected), numbers(),
                                          layout_, context.batch.sequences);
  const at::Tensor result = normed(out, projected);
  if (kept != nullptr) {
    kept->projected = std::move(projected);
    kept->out = std::move(out);
  } else {
    projected.reset();
    out.reset();
  }
  return out_->forward(read_rows(result, context), weights, behind_attention(context),
                       kept != nullptr ? &kept->out_linear : nullptr, left);
}

TokenMixerGradients Mamba2::backward(const at::Tensor& dy, const UnitLoan& weights,
                                     const ForwardContext& context, TokenMixerKept& kept,
                                     bool input_gradient) const {
  const bool through = input_gradient || in_->learns();
  const at::Tensor projected = std::exchange(kept.projected, {});
  at::Tensor dout, dprojected;
  {
    const ForwardContext behind = behind_attention(context);
    ops::LoraLinearGradients out = out_->backward(dy, weights, behind, kept.out_linear, through);
    at::Tensor result;
    if (through) {
      dout = read_rows_backward(std::exchange(out.dx, {}), context);
      dprojected = at::empty_like(projected);
      ops::norm_of_gated_backward_(dout, kept.out, gate(projected), unit_->tensor(norm_), norm_groups_,
                                   norm_eps_, gate(dprojected), out.want_input() ? &result : nullptr);
    } else if (out.want_input()) {
      result = normed(kept.out, projected);
    }
    if (out.want_input()) out_->add_a_gradients(out, read_rows(result, context), behind);
  }
  kept.out.reset();
  if (!through) return {};
  const ops::Sequences& sequences = context.batch.sequences;
  at::Tensor dxbc =
      ops::state_space_backward(std::exchange(dout, {}), convolved(projected, weights, context),
                                steps(projected), numbers(), layout_, sequences, steps(dprojected));
  ops::causal_conv_backward(std::exchange(dxbc, {}), before_convolution(projected),
                            convolution(weights, projected.scalar_type()), sequences,
                            before_convolution(dprojected), convolution_bias());
  TokenMixerGradients gradients;
  gradients.inputs.push_back(in_->backward(dprojected, weights, context, kept.in_linear, input_gradient));
  gradients.dx = std::exchange(gradients.inputs.back().dx, {});
  return gradients;
}

void Mamba2::add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                             const ForwardContext& context) const {
  in_->add_a_gradients(gradients.inputs.front(), x, context);
}

}  // namespace lorikeet::nn
