#include "nn/short_conv.h"

#include <ATen/ATen.h>

#include <utility>

#include "nn/batch.h"
#include "nn/kv_cache.h"
#include "nn/output_rows.h"
#include "ops/gated_conv/gated_conv.h"

namespace lorikeet::nn {

// Tensors are declared in the unit in the order of use.
ShortConv::ShortConv(const ShortConvSpec& spec, std::int64_t layer, LinearFactory& factory, WeightUnit& unit)
    : layer_(layer),
      hidden_size_(spec.hidden_size),
      taps_(spec.taps),
      in_(factory.linear({{spec.input_module()}, spec.hidden_size}, unit)),
      convolution_(unit.declare({{spec.prefix + "." + spec.names.convolution + ".weight",
                                  {spec.hidden_size, 1, spec.taps},
                                  factory.policy().base_storage}})),
      out_(factory.linear({{spec.output_module()}, spec.hidden_size}, unit)) {}

at::Tensor ShortConv::convolution(const UnitLoan& weights, at::ScalarType dtype) const {
  return weights.matrix(convolution_, hidden_size_, taps_).dense(dtype);
}

at::Tensor ShortConv::cached(const at::Tensor& projected, const UnitLoan& weights,
                             const ForwardContext& context) const {
  const ops::Sequences& sequences = context.batch.sequences;
  const at::Tensor rows =
      projected.narrow(1, 0, hidden_size_) * projected.narrow(1, 2 * hidden_size_, hidden_size_);
  const std::vector<RecurrentState*> states = context.cache->recurrent(layer_);
  std::vector<at::Tensor> before;
  for (std::size_t s = 0; s < states.size(); ++s) {
    const std::int64_t begin = sequences.cu_seqlens[s], count = sequences.cu_seqlens[s + 1] - begin;
    before.push_back(states[s]->move_on(rows.narrow(0, begin, count), taps_ - 1));
  }
  return ops::gated_conv(projected, convolution(weights, projected.scalar_type()), sequences,
                         at::stack(before));
}

at::Tensor ShortConv::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                              TokenMixerKept* kept, ops::LeftTerms* left) const {
  at::Tensor projected = in_->forward(x, weights, context, kept != nullptr ? &kept->in_linear : nullptr);
  at::Tensor out = context.cache != nullptr
                       ? cached(projected, weights, context)
                       : ops::gated_conv(projected, convolution(weights, projected.scalar_type()),
                                         context.batch.sequences);
  if (kept != nullptr) {
    kept->projected = std::move(projected);
  } else {
    projected.reset();
  }
  return out_->forward(read_rows(out, context), weights, behind_attention(context),
                       kept != nullptr ? &kept->out_linear : nullptr, left);
}

TokenMixerGradients ShortConv::backward(const at::Tensor& dy, const UnitLoan& weights,
                                        const ForwardContext& context, TokenMixerKept& kept,
                                        bool input_gradient) const {
  const bool through = input_gradient || in_->learns();
  const ForwardContext behind = behind_attention(context);
  const at::Tensor projected = std::exchange(kept.projected, {});
  const at::Tensor weight = convolution(weights, projected.scalar_type());
  ops::LoraLinearGradients out = out_->backward(dy, weights, behind, kept.out_linear, through);
  at::Tensor result, dprojected;
  if (through) {
    dprojected =
        ops::gated_conv_backward(read_rows_backward(std::exchange(out.dx, {}), context), projected, weight,
                                 context.batch.sequences, out.want_input() ? &result : nullptr);
  } else if (out.want_input()) {
    result = ops::gated_conv(projected, weight, context.batch.sequences);
  }
  if (out.want_input()) out_->add_a_gradients(out, read_rows(result, context), behind);
  result.reset();
  if (!through) return {};
  TokenMixerGradients gradients;
  gradients.inputs.push_back(in_->backward(dprojected, weights, context, kept.in_linear, input_gradient));
  gradients.dx = std::exchange(gradients.inputs.back().dx, {});
  return gradients;
}

void ShortConv::add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                                const ForwardContext& context) const {
  in_->add_a_gradients(gradients.inputs.front(), x, context);
}

}  // namespace lorikeet::nn
