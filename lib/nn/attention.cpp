#include "nn/attention.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "nn/batch.h"
#include "nn/kv_cache.h"
#include "nn/output_rows.h"
#include "nn/pass_state.h"
#include "ops/rotary/rotary.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"

namespace lorikeet::nn {
namespace {

// Of a norm over each head or over all of them.
void check_size(const NormSpec& norm, std::int64_t heads, std::int64_t head_dim) {
  if (norm.size != head_dim && norm.size != heads * head_dim) {
    throw Error("[" + norm.name + "] expected a norm over " + std::to_string(head_dim) + " or " +
                std::to_string(heads * head_dim) + " values, got " + std::to_string(norm.size));
  }
}

// What a norm of `rows` without weight multiplies by.
ops::NormParameters without_weight(const at::Tensor& rows) {
  return {at::ones({rows.size(-1)}, rows.options()), {}};
}

}  // namespace

std::vector<Module> AttentionSpec::qkv_modules() const {
  if (latent) return latent->input_modules(prefix);
  const std::int64_t q = layout.heads * layout.head_dim, kv = layout.kv_heads * layout.head_dim;
  if (!fused_qkv) {
    Module of_q{prefix + "." + names.q, q};
    if (output_gate) of_q = {of_q.name, 2 * q, {layout.heads, {1, 1}, layout.head_dim}};
    if (keys_of) return {std::move(of_q)};
    std::vector<Module> modules{std::move(of_q), {prefix + "." + names.k, kv}};
    if (!keys_as_values) modules.push_back({prefix + "." + names.v, kv});
    return modules;
  }
  const std::int64_t groups = fused_qkv->row_groups;
  const std::int64_t heads = fused_qkv->per_group(layout.heads);
  const std::int64_t kv_heads = fused_qkv->per_group(layout.kv_heads);
  const RowOrder order{groups, {heads, kv_heads, kv_heads}, layout.head_dim};
  return {{prefix + "." + fused_qkv->name, q + 2 * kv, order}};
}

// In the queries' dtype, as transformers has it: a wider one would make the product wide on its way.
at::Tensor query_scale(const RotaryRows& rotary, at::ScalarType dtype) {
  return rotary && rotary->query_scale.defined() ? rotary->query_scale.to(dtype) : at::Tensor();
}

at::Tensor cached_attention(const at::Tensor& qkv, const ops::HeadLayout& layout, std::int64_t layer,
                            const ForwardContext& context, const ops::AttentionOptions& options,
                            const at::Tensor& sinks) {
  const auto heads = [&](std::int64_t begin, std::int64_t count) {
    return qkv.narrow(1, begin, count * layout.head_dim).view({qkv.size(0), count, layout.head_dim});
  };
  const auto& cu = context.batch.sequences.cu_seqlens;
  if (qkv.size(1) == layout.width()) {
    context.cache->append(layer, heads(layout.k_begin(), layout.kv_heads),
                          heads(layout.v_begin(), layout.kv_heads), cu);
  }
  return ops::attention_cached(heads(0, layout.heads), context.cache->keys(layer),
                               context.cache->values(layer), cu, options, sinks);
}

Module AttentionSpec::output_module() const { return {prefix + "." + names.output, hidden_size}; }

Attention::Attention(const AttentionSpec& spec, std::int64_t layer, LayerRotary rotary,
                     LinearFactory& factory, WeightUnit& unit)
    : layer_(layer),
      rotary_(rotary),
      layout_(spec.layout),
      options_(spec.options),
      gated_(spec.output_gate),
      keys_as_values_(spec.keys_as_values),
      keys_of_(spec.keys_of),
      lends_keys_(spec.lends_keys),
      unit_(&unit) {
  if (gated_ && spec.fused_qkv)
    throw Error("[" + spec.prefix + "] expected a gate beside separate q, k and v, got fused ones");
  if (keys_as_values_ && spec.fused_qkv)
    throw Error("[" + spec.prefix + "] expected keys as values beside separate q and k, got fused ones");
  if (keys_of_ && (gated_ || keys_as_values_ || lends_keys_ || spec.fused_qkv || *keys_of_ >= layer))
    throw Error("[" + spec.prefix + "] expected queries alone beside the keys of an earlier layer");
  if (spec.value_norm_eps && !keys_of_) value_norm_ = ops::NormOptions{.eps = *spec.value_norm_eps};
  qkv_ = factory.linear({spec.qkv_modules(), spec.hidden_size, spec.qkv_bias}, unit);
  if (spec.qk_norm) {
    check_size(spec.qk_norm->q, layout_.heads, layout_.head_dim);
    q_norm_.emplace(spec.qk_norm->q, unit, factory.policy().base_storage);
    if (!keys_of_) {
      check_size(spec.qk_norm->k, layout_.kv_heads, layout_.head_dim);
      k_norm_.emplace(spec.qk_norm->k, unit, factory.policy().base_storage);
    }
  }
  if (spec.sinks)
    sinks_ = unit.declare({{spec.prefix + ".sinks", {layout_.heads}, factory.policy().statistics}});
  out_ = factory.linear({{spec.output_module()}, spec.output_width(), spec.output_bias}, unit);
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

ops::QkNorms Attention::norms() const {
  return {.q = q_norm_->parameters(),
          .k = k_norm_->parameters(),
          .q_options = q_norm_->options(),
          .k_options = k_norm_->options()};
}

at::Tensor Attention::packed(const at::Tensor& projected) const {
  if (!gated_ && !keys_as_values_) return projected;
  const at::Tensor q = projected.narrow(1, 0, layout_.k_begin());
  const at::Tensor rest = projected.slice(1, (gated_ ? 2 : 1) * layout_.k_begin());
  return keys_as_values_ ? at::cat({q, rest, rest}, 1) : at::cat({q, rest}, 1);
}

at::Tensor Attention::packed_backward(at::Tensor dqkv) const {
  if (!keys_as_values_) return dqkv;
  const std::int64_t width = layout_.v_begin() - layout_.k_begin();
  dqkv.narrow(1, layout_.k_begin(), width).add_(dqkv.narrow(1, layout_.v_begin(), width));
  return dqkv.narrow(1, 0, layout_.v_begin()).contiguous();
}

at::Tensor Attention::values(const at::Tensor& qkv) const {
  return qkv.slice(1, layout_.v_begin()).unflatten(1, {layout_.kv_heads, layout_.head_dim});
}

at::Tensor Attention::gates(const at::Tensor& projected) const {
  return projected.narrow(1, layout_.k_begin(), layout_.k_begin());
}

// What attention reads, of what was projected: beside it where that is kept, else in place. `terms`: left to
// rotary.
at::Tensor Attention::prepare(const at::Tensor& projected, const ForwardContext& context,
                              TokenMixerKept* kept, const std::vector<ops::LowRankTerm>& terms) const {
  if (keys_of_) return prepare_queries(projected, context, kept);
  const ops::RotaryAngles angles = rotary(context);
  const at::Tensor given = packed(projected);
  at::Tensor qkv = given;
  if (q_norm_) {
    qkv = ops::norm_and_rotate(given, norms(), angles, layout_, kept != nullptr ? &kept->qk_norm : nullptr);
  } else {
    if (value_norm_) qkv = given.clone();
    if (angles.cos.defined()) ops::rotate(qkv, angles.cos, angles.sin, layout_, terms);
  }
  if (value_norm_) {
    at::Tensor normed = values(qkv);
    ops::norm_out(normed, values(given), without_weight(normed), *value_norm_,
                  kept != nullptr ? &kept->value_norm : nullptr);
  }
  if (const at::Tensor scale = query_scale(rotary_rows(context), qkv.scalar_type()); scale.defined())
    qkv.narrow(1, 0, layout_.k_begin()).mul_(scale);
  return qkv;
}

at::Tensor Attention::prepare_queries(const at::Tensor& projected, const ForwardContext& context,
                                      TokenMixerKept* kept) const {
  const ops::RotaryAngles angles = rotary(context);
  at::Tensor q = projected;
  if (q_norm_) {
    q = ops::norm(projected.unflatten(1, {-1, q_norm_->parameters().weight.numel()}), q_norm_->parameters(),
                  q_norm_->options(), kept != nullptr ? &kept->qk_norm.q : nullptr)
            .flatten(1);
  } else if (angles.cos.defined()) {
    q = projected.clone();
  }
  if (angles.cos.defined()) ops::rotate(q, angles.cos, angles.sin, layout_.of_queries());
  if (const at::Tensor scale = query_scale(rotary_rows(context), q.scalar_type()); scale.defined())
    q = q * scale;
  return context.cache != nullptr ? q : at::cat({q, context.pass->keys.rows(*keys_of_)}, 1);
}

at::Tensor Attention::queries_backward(const ops::HeadGradients& gradients, const ForwardContext& context,
                                       const TokenMixerKept& kept) const {
  context.pass->keys.add_gradients(*keys_of_, gradients.k, gradients.v);
  const ops::RotaryAngles angles = rotary(context);
  at::Tensor dq = gradients.q.flatten(1).contiguous();
  if (angles.cos.defined())
    dq = ops::rotate_backward({{}, {}, {}, dq}, angles.cos, angles.sin, layout_.of_queries());
  if (q_norm_) {
    const std::int64_t size = q_norm_->parameters().weight.numel();
    at::Tensor heads = dq.unflatten(1, {-1, size});
    ops::norm_backward_(heads, kept.projected.unflatten(1, {-1, size}), q_norm_->parameters(),
                        q_norm_->options(), kept.qk_norm.q);
  }
  return dq;
}

at::Tensor Attention::prepare_backward(ops::HeadGradients gradients, const ForwardContext& context,
                                       const TokenMixerKept& kept) const {
  if (const at::Tensor scale = query_scale(rotary_rows(context), gradients.q.scalar_type()); scale.defined())
    gradients.q.mul_(scale.unsqueeze(1));
  if (keys_of_) return queries_backward(gradients, context, kept);
  if (lends_keys_) {
    if (const at::Tensor of_readers = context.pass->keys.take_gradient(layer_); of_readers.defined()) {
      const std::int64_t width = layout_.v_begin() - layout_.k_begin();
      gradients.k.add_(of_readers.narrow(1, 0, width).view_as(gradients.k));
      gradients.v.add_(of_readers.narrow(1, width, width).view_as(gradients.v));
    }
  }
  const ops::RotaryAngles angles = rotary(context);
  if (!q_norm_ && !value_norm_) {
    if (angles.cos.defined()) return ops::rotate_backward(gradients, angles.cos, angles.sin, layout_);
    return ops::pack(gradients);
  }
  const at::Tensor given = packed(kept.projected);
  at::Tensor dqkv;
  if (q_norm_) {
    dqkv = ops::norm_and_rotate_backward(std::move(gradients), given, norms(), angles, layout_, kept.qk_norm);
  } else {
    dqkv = angles.cos.defined() ? ops::rotate_backward(gradients, angles.cos, angles.sin, layout_)
                                : ops::pack(gradients);
  }
  if (value_norm_) {
    at::Tensor dvalues = values(dqkv);
    ops::norm_backward_(dvalues, values(given), without_weight(dvalues), *value_norm_, kept.value_norm);
  }
  return dqkv;
}

at::Tensor Attention::cached(const at::Tensor& qkv, const ForwardContext& context) const {
  return cached_attention(qkv, layout_, keys_of_.value_or(layer_), context, options_, sinks());
}

at::Tensor Attention::forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                              TokenMixerKept* kept, ops::LeftTerms* left) const {
  const at::Tensor cos = rotary(context).cos;
  ops::LeftTerms of_qkv([&](const at::Tensor& product, const std::vector<ops::LowRankTerm>& terms) {
    return ops::rotate_adds(product, cos, layout_, terms);
  });
  at::Tensor projected = qkv_->forward(x, weights, context, kept != nullptr ? &kept->in_linear : nullptr,
                                       cos.defined() && !keeps_projected() ? &of_qkv : nullptr);
  at::Tensor qkv = prepare(projected, context, kept, of_qkv.terms);
  if (kept == nullptr && !gated_) projected.reset();
  if (lends_keys_ && context.cache == nullptr)
    context.pass->keys.put(layer_, qkv.slice(1, layout_.k_begin()).contiguous());
  at::Tensor out = context.cache != nullptr
                       ? cached(qkv, context)
                       : ops::attention(qkv, layout_, context.batch.sequences, options_,
                                        kept != nullptr ? &kept->softmax : nullptr, sinks());
  qkv.reset();
  const at::Tensor gated = gated_ ? ops::sigmoid_gate(out, gates(projected)) : out;
  if (kept != nullptr) {
    kept->projected = std::move(projected);
    kept->out = std::move(out);
  } else {
    projected.reset();
    out.reset();
  }
  return out_->forward(read_rows(gated, context), weights, behind_attention(context),
                       kept != nullptr ? &kept->out_linear : nullptr, left);
}

TokenMixerGradients Attention::backward(const at::Tensor& dy, const UnitLoan& weights,
                                        const ForwardContext& context, TokenMixerKept& kept,
                                        bool input_gradient) const {
  const bool through_attention = input_gradient || qkv_->learns();
  at::Tensor dout, dprojected;
  {
    const ForwardContext behind = behind_attention(context);
    ops::LoraLinearGradients out = out_->backward(dy, weights, behind, kept.out_linear, through_attention);
    at::Tensor read = kept.out;
    if (through_attention) dout = read_rows_backward(std::exchange(out.dx, {}), context);
    if (gated_ && through_attention) {
      dprojected = at::empty_like(kept.projected);
      ops::sigmoid_gate_backward_(dout, kept.out, gates(kept.projected), gates(dprojected),
                                  out.want_input() ? &read : nullptr);
    } else if (gated_ && out.want_input()) {
      read = ops::sigmoid_gate(kept.out, gates(kept.projected));
    }
    if (out.want_input()) out_->add_a_gradients(out, read_rows(read, context), behind);
  }
  if (!through_attention) return {};
  ops::HeadGradients gradients;
  {
    const at::Tensor qkv = keeps_projected() ? prepare(kept.projected, context, nullptr) : kept.projected;
    gradients = ops::attention_backward(dout, qkv, kept.out, kept.softmax, layout_, context.batch.sequences,
                                        options_);
  }
  dout.reset();
  kept.out.reset();
  kept.softmax = {};
  at::Tensor dqkv = packed_backward(prepare_backward(std::exchange(gradients, {}), context, kept));
  kept.projected.reset();
  if (gated_) {
    dprojected.narrow(1, 0, layout_.k_begin()).copy_(dqkv.narrow(1, 0, layout_.k_begin()));
    dprojected.slice(1, 2 * layout_.k_begin()).copy_(dqkv.slice(1, layout_.k_begin()));
    dqkv = std::exchange(dprojected, {});
  }
  TokenMixerGradients result;
  result.inputs.push_back(qkv_->backward(dqkv, weights, context, kept.in_linear, input_gradient));
  result.dx = std::exchange(result.inputs.front().dx, {});
  return result;
}

}  // namespace lorikeet::nn
