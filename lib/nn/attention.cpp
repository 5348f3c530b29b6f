#include "nn/attention.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "nn/batch.h"
#include "nn/kv_cache.h"
#include "nn/output_rows.h"
#include "ops/rotary/rotary.h"

namespace lorikeet::nn {
namespace {

// Of a norm over each head or over all of them.
void check_size(const NormSpec& norm, std::int64_t heads, std::int64_t head_dim) {
  if (norm.size != head_dim && norm.size != heads * head_dim) {
    throw Error("[" + norm.name + "] expected a norm over " + std::to_string(head_dim) + " or " +
                std::to_string(heads * head_dim) + " values, got " + std::to_string(norm.size));
  }
}

}  // namespace

std::vector<Module> AttentionSpec::qkv_modules() const {
  const std::int64_t q = layout.heads * layout.head_dim, kv = layout.kv_heads * layout.head_dim;
  if (!fused_qkv)
    return {{prefix + "." + names.q, q}, {prefix + "." + names.k, kv}, {prefix + "." + names.v, kv}};
  const std::int64_t groups = fused_qkv->row_groups;
  const std::int64_t heads = fused_qkv->per_group(layout.heads);
  const std::int64_t kv_heads = fused_qkv->per_group(layout.kv_heads);
  const RowOrder order{groups, {heads, kv_heads, kv_heads}, layout.head_dim};
  return {{prefix + "." + fused_qkv->name, q + 2 * kv, order}};
}

Module AttentionSpec::output_module() const { return {prefix + "." + names.output, hidden_size}; }

Attention::Attention(const AttentionSpec& spec, std::int64_t layer, LayerRotary rotary,
                     LinearFactory& factory, WeightUnit& unit)
    : layer_(layer), rotary_(rotary), layout_(spec.layout), options_(spec.options) {
  qkv_ = factory.linear({spec.qkv_modules(), spec.hidden_size, spec.qkv_bias}, unit);
  if (spec.qk_norm) {
    check_size(spec.qk_norm->q, layout_.heads, layout_.head_dim);
    check_size(spec.qk_norm->k, layout_.kv_heads, layout_.head_dim);
    q_norm_.emplace(spec.qk_norm->q, unit, factory.policy().base_storage);
    k_norm_.emplace(spec.qk_norm->k, unit, factory.policy().base_storage);
  }
  out_ = factory.linear({{spec.output_module()}, layout_.heads * layout_.head_dim, spec.output_bias}, unit);
}

const RotaryRows& Attention::rotary_rows(const ForwardContext& context) const {
  static const RotaryRows kNone;
  switch (rotary_) {
    case LayerRotary::kNone: return kNone;
    case LayerRotary::kGlobal: return context.rotary;
    case LayerRotary::kLocal: return context.local_rotary;
  }
  return kNone;
}

ops::RotaryAngles Attention::rotary(const ForwardContext& context) const {
  const RotaryRows& rows = rotary_rows(context);
  return rows ? ops::RotaryAngles{rows->cos, rows->sin} : ops::RotaryAngles{};
}

// In the queries' dtype, as transformers has it: a wider one would make the product wide on its way.
at::Tensor Attention::query_scale(const ForwardContext& context, at::ScalarType dtype) const {
  const RotaryRows& rows = rotary_rows(context);
  return rows && rows->query_scale.defined() ? rows->query_scale.to(dtype) : at::Tensor();
}

ops::QkNorms Attention::norms() const {
  return {.q = q_norm_->parameters(),
          .k = k_norm_->parameters(),
          .q_options = q_norm_->options(),
          .k_options = k_norm_->options()};
}

// What attention reads, of what was projected: in place without norms, else beside it, since their backward
// reads queries and keys as they were. `terms`: left to rotary.
at::Tensor Attention::prepare(at::Tensor qkv, const ForwardContext& context, AttentionKept* kept,
                              const std::vector<ops::LowRankTerm>& terms) const {
  const ops::RotaryAngles angles = rotary(context);
  if (q_norm_) {
    qkv = ops::norm_and_rotate(qkv, norms(), angles, layout_, kept != nullptr ? &kept->qk_norm : nullptr);
  } else if (angles.cos.defined()) {
    ops::rotate(qkv, angles.cos, angles.sin, layout_, terms);
  }
  if (const at::Tensor scale = query_scale(context, qkv.scalar_type()); scale.defined())
    qkv.narrow(1, 0, layout_.k_begin()).mul_(scale);
  return qkv;
}

at::Tensor Attention::prepare_backward(ops::HeadGradients gradients, const ForwardContext& context,
                                       const AttentionKept& kept) const {
  const ops::RotaryAngles angles = rotary(context);
  if (const at::Tensor scale = query_scale(context, gradients.q.scalar_type()); scale.defined())
    gradients.q.mul_(scale.unsqueeze(1));
  if (q_norm_)
    return ops::norm_and_rotate_backward(std::move(gradients), kept.qkv, norms(), angles, layout_,
                                         kept.qk_norm);
  if (angles.cos.defined()) return ops::rotate_backward(gradients, angles.cos, angles.sin, layout_);
  return ops::pack(gradients);
}

at::Tensor Attention::cached(const at::Tensor& qkv, const ForwardContext& context) const {
  const std::int64_t tokens = qkv.size(0);
  const auto heads = [&](std::int64_t begin, std::int64_t count) {
    return qkv.narrow(1, begin, count * layout_.head_dim).view({tokens, count, layout_.head_dim});
  };
  const auto& cu = context.batch.sequences.cu_seqlens;
  context.cache->append(layer_, heads(layout_.k_begin(), layout_.kv_heads),
                        heads(layout_.v_begin(), layout_.kv_heads), cu);
  return ops::attention_cached(heads(0, layout_.heads), context.cache->keys(layer_),
                               context.cache->values(layer_), cu, options_);
}

at::Tensor Attention::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                              AttentionKept* kept, ops::LeftTerms* left) const {
  const at::Tensor cos = rotary(context).cos;
  ops::LeftTerms of_qkv([&](const at::Tensor& product, const std::vector<ops::LowRankTerm>& terms) {
    return ops::rotate_adds(product, cos, layout_, terms);
  });
  at::Tensor projected = qkv_->forward(x, weights, context, kept != nullptr ? &kept->qkv_linear : nullptr,
                                       cos.defined() && !q_norm_ ? &of_qkv : nullptr);
  const at::Tensor qkv = prepare(projected, context, kept, of_qkv.terms);
  if (kept == nullptr) projected.reset();
  const at::Tensor out = context.cache != nullptr
                             ? cached(qkv, context)
                             : ops::attention(qkv, layout_, context.batch.sequences, options_,
                                              kept != nullptr ? &kept->softmax : nullptr);
  if (kept != nullptr) {
    kept->qkv = std::move(projected);
    kept->out = out;
  }
  return out_->forward(read_rows(out, context), weights, behind_attention(context),
                       kept != nullptr ? &kept->out_linear : nullptr, left);
}

ops::LoraLinearGradients Attention::backward(const at::Tensor& dy, const UnitLoan& weights,
                                             const ForwardContext& context, AttentionKept& kept,
                                             bool input_gradient) const {
  const bool through_attention = input_gradient || qkv_->learns();
  at::Tensor dout;
  {
    const ForwardContext behind = behind_attention(context);
    ops::LoraLinearGradients out = out_->backward(dy, weights, behind, kept.out_linear, through_attention);
    if (out.want_input()) out_->add_a_gradients(out, read_rows(kept.out, context), behind);
    dout = std::move(out.dx);
  }
  if (!through_attention) return {};
  dout = read_rows_backward(dout, context);
  ops::HeadGradients gradients;
  {
    const at::Tensor qkv = q_norm_ ? prepare(kept.qkv, context, nullptr) : kept.qkv;
    gradients = ops::attention_backward(dout, qkv, kept.out, kept.softmax, layout_, context.batch.sequences,
                                        options_);
  }
  dout.reset();
  kept.out.reset();
  kept.softmax = {};
  const at::Tensor dqkv = prepare_backward(std::exchange(gradients, {}), context, kept);
  kept.qkv.reset();
  return qkv_->backward(dqkv, weights, context, kept.qkv_linear, input_gradient);
}

}  // namespace lorikeet::nn
