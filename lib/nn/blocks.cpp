#include "nn/blocks.h"

#include "nn/batch.h"
#include "nn/kv_cache.h"
#include "ops/rotary/rotary.h"

namespace lorikeet::nn {

AttentionIn::AttentionIn(const AttentionSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : layout_(spec.layout) {
  const std::int64_t q = layout_.heads * layout_.head_dim;
  const std::int64_t kv = layout_.kv_heads * layout_.head_dim;
  qkv_ = factory.linear({.projections = {{spec.prefix + "." + spec.names.q, q},
                                         {spec.prefix + "." + spec.names.k, kv},
                                         {spec.prefix + "." + spec.names.v, kv}},
                         .in_features = spec.hidden_size,
                         .bias = spec.qkv_bias,
                         .role = LinearRole::kColumn},
                        unit);
}

at::Tensor AttentionIn::forward(const at::Tensor& normed, const RotaryRows& rotary,
                                const ForwardContext& context) const {
  at::Tensor qkv = qkv_->forward(normed, context);
  if (!rotary) return qkv;
  return ops::rotary(std::move(qkv), rotary->cos, rotary->sin, layout_);
}

AttentionOut::AttentionOut(const AttentionSpec& spec, std::int64_t layer, LinearFactory& factory,
                           WeightUnit& unit)
    : layer_(layer), layout_(spec.layout), options_(spec.options) {
  out_ = factory.linear({.projections = {{spec.prefix + "." + spec.names.output, spec.hidden_size}},
                         .in_features = layout_.heads * layout_.head_dim,
                         .bias = spec.output_bias,
                         .role = LinearRole::kRow},
                        unit);
}

at::Tensor AttentionOut::cached(const at::Tensor& qkv, const ForwardContext& context) const {
  const std::int64_t tokens = qkv.size(0);
  const std::int64_t q_size = layout_.heads * layout_.head_dim;
  const std::int64_t kv_size = layout_.kv_heads * layout_.head_dim;
  const auto heads = [&](std::int64_t begin, std::int64_t count) {
    return qkv.narrow(1, begin, count * layout_.head_dim).view({tokens, count, layout_.head_dim});
  };
  const auto& cu = context.batch.sequences.cu_seqlens;
  context.cache->append(layer_, heads(q_size, layout_.kv_heads), heads(q_size + kv_size, layout_.kv_heads),
                        cu);
  return ops::attention_cached(heads(0, layout_.heads), context.cache->keys(layer_),
                               context.cache->values(layer_), cu, options_);
}

at::Tensor AttentionOut::forward(const at::Tensor& qkv, const ForwardContext& context) const {
  const at::Tensor attended = context.cache != nullptr
                                  ? cached(qkv, context)
                                  : ops::attention(qkv, layout_, context.batch.sequences, options_);
  return out_->forward(attended, context);
}

GatedMlp::GatedMlp(const MlpSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : activation_(spec.activation) {
  gate_up_ = factory.linear({.projections = {{spec.prefix + "." + spec.names.gate, spec.intermediate_size},
                                             {spec.prefix + "." + spec.names.up, spec.intermediate_size}},
                             .in_features = spec.hidden_size,
                             .bias = spec.bias,
                             .role = LinearRole::kColumn},
                            unit);
  down_ = factory.linear({.projections = {{spec.prefix + "." + spec.names.down, spec.hidden_size}},
                          .in_features = spec.intermediate_size,
                          .bias = spec.bias,
                          .role = LinearRole::kRow},
                         unit);
}

at::Tensor GatedMlp::forward(const at::Tensor& normed, const ForwardContext& context) const {
  return down_->forward(ops::gated_activation(gate_up_->forward(normed, context), activation_), context);
}

}  // namespace lorikeet::nn
