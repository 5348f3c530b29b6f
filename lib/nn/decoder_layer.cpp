#include "nn/decoder_layer.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"

namespace lorikeet::nn {
namespace {

std::optional<Norm> maybe_norm(const std::optional<NormSpec>& spec, WeightUnit& unit, DType storage) {
  if (!spec) return std::nullopt;
  return Norm(*spec, unit, storage);
}

const DecoderLayerSpec& checked(const DecoderLayerSpec& spec) {
  if (spec.parallel == spec.mlp_norm.has_value()) {
    throw Error("[layer " + std::to_string(spec.index) + "] expected " +
                (spec.parallel ? "no mlp_norm in parallel form, where one norm feeds both; got '" +
                                     spec.mlp_norm->name + "'"
                               : "an mlp_norm, which only the parallel form lacks; got none"));
  }
  return spec;
}

}  // namespace

DecoderLayer::DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightStore& store)
    : DecoderLayer(checked(spec), factory, store.add_unit("layer " + std::to_string(spec.index))) {}

// Members are declared in the unit in the order of use.
DecoderLayer::DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : parallel_(spec.parallel),
      rotary_(spec.rotary),
      attention_norm_(spec.attention_norm, unit, factory.policy().base_storage),
      attention_in_(spec.attention, factory, unit),
      attention_out_(spec.attention, spec.index, factory, unit),
      post_attention_norm_(maybe_norm(spec.post_attention_norm, unit, factory.policy().base_storage)),
      mlp_norm_(maybe_norm(spec.mlp_norm, unit, factory.policy().base_storage)),
      mlp_(spec.mlp, factory, unit),
      post_mlp_norm_(maybe_norm(spec.post_mlp_norm, unit, factory.policy().base_storage)) {}

Hidden DecoderLayer::forward(Hidden hidden, const RotaryRows& rotary, const ForwardContext& context) const {
  const at::Tensor normed = attention_norm_.forward(hidden);
  at::Tensor attended = attention_out_.forward(
      attention_in_.forward(normed, rotary_ ? rotary : std::nullopt, context), context);
  if (post_attention_norm_) attended = post_attention_norm_->forward(attended);
  hidden.delta = std::move(attended);
  at::Tensor transformed = mlp_.forward(parallel_ ? normed : mlp_norm_->forward(hidden), context);
  if (post_mlp_norm_) transformed = post_mlp_norm_->forward(transformed);
  hidden.delta = parallel_ ? hidden.delta + transformed : std::move(transformed);
  return hidden;
}

}  // namespace lorikeet::nn
