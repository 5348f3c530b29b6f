#include "nn/gated_delta_net.h"

#include <ATen/ATen.h>

#include <utility>

#include "nn/batch.h"
#include "nn/kv_cache.h"
#include "nn/output_rows.h"
#include "ops/causal_conv/causal_conv.h"
#include "ops/gated_norm/gated_norm.h"

namespace lorikeet::nn {

std::vector<Module> GatedDeltaNetSpec::input_modules() const {
  if (fused) {
    const std::int64_t k = layout.key_dim, v = value_width() / layout.key_heads;
    return {
        {prefix + "." + fused->qkvz, layout.width() + value_width(), {layout.key_heads, {k, k, v, v}, 1}}};
  }
  return {{prefix + "." + names.qkv, layout.width()}, {prefix + "." + names.z, value_width()}};
}

std::vector<Module> GatedDeltaNetSpec::gate_modules() const {
  if (fused) {
    const std::int64_t heads = layout.value_heads / layout.key_heads;
    return {{prefix + "." + fused->ba, 2 * layout.value_heads, {layout.key_heads, {heads, heads}, 1}}};
  }
  return {{prefix + "." + names.b, layout.value_heads}, {prefix + "." + names.a, layout.value_heads}};
}

Module GatedDeltaNetSpec::output_module() const { return {prefix + "." + names.output, hidden_size}; }

// Tensors are declared in the unit in the order of use.
GatedDeltaNet::GatedDeltaNet(const GatedDeltaNetSpec& spec, std::int64_t layer, LinearFactory& factory,
                             WeightUnit& unit)
    : layer_(layer), layout_(spec.layout), taps_(spec.taps), norm_eps_(spec.norm_eps), unit_(&unit) {
  const DType storage = factory.policy().base_storage;
  const auto declare = [&](const std::string& name, std::vector<std::int64_t> shape, DType dtype) {
    return unit.declare({{spec.prefix + "." + name, std::move(shape), dtype}});
  };
  in_ = factory.linear({spec.input_modules(), spec.hidden_size}, unit);
  gates_ = factory.linear({spec.gate_modules(), spec.hidden_size}, unit);
  convolution_ = declare(spec.names.convolution + ".weight", {layout_.width(), 1, taps_}, storage);
  a_log_ = declare(spec.names.a_log, {layout_.value_heads}, factory.policy().statistics);
  dt_bias_ = declare(spec.names.dt_bias, {layout_.value_heads}, factory.policy().statistics);
  norm_ = declare(spec.names.norm + ".weight", {layout_.value_dim}, storage);
  out_ = factory.linear({{spec.output_module()}, spec.value_width()}, unit);
}

at::Tensor GatedDeltaNet::convolution(const UnitLoan& weights, at::ScalarType dtype) const {
  return weights.matrix(convolution_, layout_.width(), taps_).dense(dtype);
}

ops::DeltaDecay GatedDeltaNet::decay() const { return {unit_->tensor(a_log_), unit_->tensor(dt_bias_)}; }

at::Tensor GatedDeltaNet::before_convolution(const at::Tensor& projected) const {
  return projected.narrow(1, 0, layout_.width());
}

at::Tensor GatedDeltaNet::z(const at::Tensor& projected) const { return projected.slice(1, layout_.width()); }

at::Tensor GatedDeltaNet::convolved(const at::Tensor& projected, const UnitLoan& weights,
                                    const ForwardContext& context) const {
  const at::Tensor rows = before_convolution(projected);
  return ops::causal_conv(rows, convolution(weights, rows.scalar_type()), context.batch.sequences);
}

at::Tensor GatedDeltaNet::cached(const at::Tensor& projected, const at::Tensor& gates,
                                 const UnitLoan& weights, const ForwardContext& context) const {
  const ops::Sequences& sequences = context.batch.sequences;
  const at::Tensor rows = before_convolution(projected);
  const std::vector<RecurrentState*> states = context.cache->recurrent(layer_);
  std::vector<at::Tensor> before, rule;
  for (std::size_t s = 0; s < states.size(); ++s) {
    const std::int64_t begin = sequences.cu_seqlens[s], count = sequences.cu_seqlens[s + 1] - begin;
    before.push_back(states[s]->move_on(rows.narrow(0, begin, count), taps_ - 1));
    rule.push_back(states[s]->rule);
  }
  const at::Tensor qkv =
      ops::causal_conv(rows, convolution(weights, rows.scalar_type()), sequences, at::stack(before));
  at::Tensor out = ops::gated_delta(qkv, gates, decay(), layout_, sequences, &rule);
  for (std::size_t s = 0; s < states.size(); ++s) states[s]->rule = std::move(rule[s]);
  return out;
}

at::Tensor GatedDeltaNet::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                                  TokenMixerKept* kept, ops::LeftTerms* left) const {
  at::Tensor projected = in_->forward(x, weights, context, kept != nullptr ? &kept->in_linear : nullptr);
  at::Tensor gates = gates_->forward(x, weights, context, kept != nullptr ? &kept->gates_linear : nullptr);
  at::Tensor out;
  if (context.cache != nullptr) {
    out = cached(projected, gates, weights, context);
  } else {
    out = ops::gated_delta(convolved(projected, weights, context), gates, decay(), layout_,
                           context.batch.sequences);
  }
  at::Tensor normed = ops::gated_norm(out, z(projected), norm_weight(), norm_eps_);
  if (kept != nullptr) {
    kept->projected = std::move(projected);
    kept->gates = std::move(gates);
    kept->out = std::move(out);
  } else {
    projected.reset();
    gates.reset();
    out.reset();
  }
  return out_->forward(read_rows(normed, context), weights, behind_attention(context),
                       kept != nullptr ? &kept->out_linear : nullptr, left);
}

TokenMixerGradients GatedDeltaNet::backward(const at::Tensor& dy, const UnitLoan& weights,
                                            const ForwardContext& context, TokenMixerKept& kept,
                                            bool input_gradient) const {
  const bool through = input_gradient || in_->learns() || gates_->learns();
  at::Tensor projected = std::exchange(kept.projected, {});
  at::Tensor dout, dprojected;
  {
    const ForwardContext behind = behind_attention(context);
    ops::LoraLinearGradients out = out_->backward(dy, weights, behind, kept.out_linear, through);
    at::Tensor normed;
    if (through) {
      dout = read_rows_backward(std::exchange(out.dx, {}), context);
      dprojected = at::empty_like(projected);
      ops::gated_norm_backward_(dout, kept.out, z(projected), norm_weight(), norm_eps_, z(dprojected),
                                out.want_input() ? &normed : nullptr);
    } else if (out.want_input()) {
      normed = ops::gated_norm(kept.out, z(projected), norm_weight(), norm_eps_);
    }
    if (out.want_input()) out_->add_a_gradients(out, read_rows(normed, context), behind);
  }
  kept.out.reset();
  if (!through) return {};
  const ops::Sequences& sequences = context.batch.sequences;
  ops::DeltaGradients rule =
      ops::gated_delta_backward(std::exchange(dout, {}), convolved(projected, weights, context),
                                std::exchange(kept.gates, {}), decay(), layout_, sequences);
  ops::causal_conv_backward(std::exchange(rule.qkv, {}), before_convolution(projected),
                            convolution(weights, projected.scalar_type()), sequences,
                            before_convolution(dprojected));
  TokenMixerGradients gradients;
  gradients.inputs.push_back(
      gates_->backward(rule.gates, weights, context, kept.gates_linear, input_gradient));
  const at::Tensor through_gates = std::exchange(gradients.inputs.front().dx, {});
  gradients.inputs.push_back(in_->backward(dprojected, weights, context, kept.in_linear, input_gradient));
  gradients.dx = std::exchange(gradients.inputs.back().dx, {});
  if (input_gradient) gradients.dx.add_(through_gates);
  return gradients;
}

void GatedDeltaNet::add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                                    const ForwardContext& context) const {
  gates_->add_a_gradients(gradients.inputs.front(), x, context);
  in_->add_a_gradients(gradients.inputs.back(), x, context);
}

}  // namespace lorikeet::nn
