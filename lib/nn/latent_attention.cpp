#include "nn/latent_attention.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "nn/batch.h"
#include "nn/output_rows.h"

namespace lorikeet::nn {
namespace {

const AttentionSpec& checked(const AttentionSpec& spec, LayerRotary rotary) {
  if (rotary != LayerRotary::kGlobal)
    throw Error("[" + spec.prefix + "] expected the model's rotary table beside latent attention");
  if (spec.fused_qkv || spec.qk_norm || spec.output_gate || spec.sinks || spec.value_norm_eps ||
      spec.keys_as_values || spec.keys_of || spec.lends_keys)
    throw Error("[" + spec.prefix +
                "] expected nothing of plain attention beside latents of keys and values");
  const auto& [heads, kv_heads, head_dim, interleaved] = spec.layout;
  const ops::HeadLayout padded = spec.latent->layout.padded();
  if (heads != padded.heads || kv_heads != padded.kv_heads || head_dim != padded.head_dim)
    throw Error("[" + spec.prefix + "] expected the heads of its latent layout");
  return spec;
}

}  // namespace

std::vector<Module> LatentSpec::input_modules(const std::string& prefix) const {
  return {{prefix + "." + (query_rank > 0 ? names.q_a : names.q), first_width()},
          {prefix + "." + names.kv_a, key_value_rank + layout.rotary_dim}};
}

std::vector<GroupSpec> LatentSpec::inner_groups(const std::string& prefix) const {
  std::vector<GroupSpec> groups;
  if (query_rank > 0) groups.push_back({{{prefix + "." + names.q_b, layout.query_width()}}, query_rank});
  groups.push_back({{{prefix + "." + names.kv_b, layout.key_value_width()}}, key_value_rank});
  return groups;
}

LatentAttention::Latent LatentAttention::latent(const std::string& norm, const GroupSpec& reader,
                                                LinearFactory& factory, WeightUnit& unit) const {
  Norm made({norm, reader.in_features, spec_.norm_eps}, unit, factory.policy().base_storage);
  return {std::move(made), factory.linear(reader, unit)};
}

// Members are declared in the unit in the order of use.
LatentAttention::LatentAttention(const AttentionSpec& spec, std::int64_t layer, LayerRotary rotary,
                                 LinearFactory& factory, WeightUnit& unit)
    : layer_(layer),
      spec_(checked(spec, rotary).latent.value()),
      heads_(spec.layout),
      options_(spec.options),
      in_(factory.linear({spec.qkv_modules(), spec.hidden_size, spec.qkv_bias}, unit)),
      query_(spec_.query_rank > 0
                 ? std::optional(latent(spec.prefix + "." + spec_.names.q_norm,
                                        spec_.inner_groups(spec.prefix).front(), factory, unit))
                 : std::nullopt),
      key_value_(latent(spec.prefix + "." + spec_.names.kv_norm, spec_.inner_groups(spec.prefix).back(),
                        factory, unit)),
      out_(factory.linear({{spec.output_module()}, spec.output_width(), spec.output_bias}, unit)) {}

bool LatentAttention::learns() const {
  return in_->learns() || (query_ && query_->projection->learns()) || key_value_.projection->learns() ||
         out_->learns();
}

at::Tensor LatentAttention::latents(const at::Tensor& projected) const {
  return query_ ? projected : projected.narrow(1, spec_.first_width(), spec_.key_value_rank);
}

at::Tensor LatentAttention::query_latent(const at::Tensor& latents) const {
  return latents.narrow(1, 0, spec_.query_rank);
}

at::Tensor LatentAttention::key_value_latent(const at::Tensor& latents) const {
  return latents.narrow(1, spec_.query_rank, spec_.key_value_rank);
}

at::Tensor LatentAttention::shared_key(const at::Tensor& projected) const {
  return projected.slice(1, spec_.first_width() + spec_.key_value_rank);
}

// Latents are columns of wider rows: to norms one head of each row.
at::Tensor LatentAttention::forward(const Latent& latent, const at::Tensor& values, const UnitLoan& weights,
                                    const ForwardContext& context, LatentKept* kept) {
  const at::Tensor normed = ops::norm(values.unsqueeze(1), latent.norm.parameters(), latent.norm.options(),
                                      kept != nullptr ? &kept->norm : nullptr)
                                .squeeze(1);
  return latent.projection->forward(normed, weights, context, kept != nullptr ? &kept->linear : nullptr);
}

void LatentAttention::backward(const Latent& latent, const at::Tensor& dy, const at::Tensor& values,
                               const UnitLoan& weights, const ForwardContext& context, const LatentKept& kept,
                               const at::Tensor& gradient) {
  const ops::NormParameters parameters = latent.norm.parameters();
  const at::Tensor rows = values.unsqueeze(1);
  ops::LoraLinearGradients gradients =
      latent.projection->backward(dy, weights, context, kept.linear, gradient.defined());
  at::Tensor normed;
  if (gradient.defined()) {
    gradient.copy_(ops::norm_backward(std::exchange(gradients.dx, {}).unsqueeze(1), {}, rows, parameters,
                                      latent.norm.options(), kept.norm,
                                      gradients.want_input() ? &normed : nullptr)
                       .squeeze(1));
  } else if (gradients.want_input()) {
    normed = ops::norm(rows, parameters, latent.norm.options());
  }
  if (gradients.want_input()) latent.projection->add_a_gradients(gradients, normed.squeeze(1), context);
}

at::Tensor LatentAttention::narrowed(const at::Tensor& out) const {
  const std::int64_t width = spec_.layout.value_dim;
  if (width == heads_.head_dim) return out;
  return out.unflatten(1, {heads_.heads, heads_.head_dim}).narrow(2, 0, width).flatten(1);
}

at::Tensor LatentAttention::filled_up(const at::Tensor& values) const {
  const std::int64_t width = spec_.layout.value_dim;
  if (width == heads_.head_dim) return values;
  return at::constant_pad_nd(values.unflatten(1, {heads_.heads, width}), {0, heads_.head_dim - width})
      .flatten(1);
}

at::Tensor LatentAttention::forward(const at::Tensor& x, const UnitLoan& weights,
                                    const ForwardContext& context, TokenMixerKept* kept,
                                    ops::LeftTerms* left) const {
  at::Tensor projected = in_->forward(x, weights, context, kept != nullptr ? &kept->in_linear : nullptr);
  const auto part = [&](LatentKept TokenMixerKept::*latent) {
    return kept != nullptr ? &(kept->*latent) : nullptr;
  };
  at::Tensor q = query_ ? forward(*query_, query_latent(latents(projected)), weights, context,
                                  part(&TokenMixerKept::query_latent))
                        : projected.narrow(1, 0, spec_.first_width());
  at::Tensor kv = forward(key_value_, key_value_latent(latents(projected)), weights, context,
                          part(&TokenMixerKept::key_value_latent));
  const RotaryRows& rotary = context.rotary;
  at::Tensor qkv = ops::latent_heads({q, kv, shared_key(projected)}, rotary->cos, rotary->sin, spec_.layout);
  if (const at::Tensor scale = query_scale(rotary, qkv.scalar_type()); scale.defined())
    qkv.narrow(1, 0, heads_.k_begin()).mul_(scale);
  // Queries without a latent are wide, and nobody reads them again.
  if (kept != nullptr) kept->latents = query_ ? projected : latents(projected).clone();
  q.reset(), kv.reset(), projected.reset();
  at::Tensor out = context.cache != nullptr ? cached_attention(qkv, heads_, layer_, context, options_)
                                            : ops::attention(qkv, heads_, context.batch.sequences, options_,
                                                             kept != nullptr ? &kept->softmax : nullptr);
  if (kept != nullptr) kept->projected = std::move(qkv);
  qkv.reset();
  const at::Tensor values = narrowed(out);
  out.reset();
  if (kept != nullptr) kept->out = values;
  return out_->forward(read_rows(values, context), weights, behind_attention(context),
                       kept != nullptr ? &kept->out_linear : nullptr, left);
}

TokenMixerGradients LatentAttention::backward(const at::Tensor& dy, const UnitLoan& weights,
                                              const ForwardContext& context, TokenMixerKept& kept,
                                              bool input_gradient) const {
  const bool through_projections = input_gradient || in_->learns();
  const bool through_attention =
      through_projections || (query_ && query_->projection->learns()) || key_value_.projection->learns();
  at::Tensor dout;
  {
    const ForwardContext behind = behind_attention(context);
    ops::LoraLinearGradients out = out_->backward(dy, weights, behind, kept.out_linear, through_attention);
    if (through_attention) dout = filled_up(read_rows_backward(std::exchange(out.dx, {}), context));
    if (out.want_input()) out_->add_a_gradients(out, read_rows(kept.out, context), behind);
  }
  if (!through_attention) return {};
  ops::HeadGradients gradients =
      ops::attention_backward(dout, kept.projected, filled_up(std::exchange(kept.out, {})), kept.softmax,
                              heads_, context.batch.sequences, options_);
  const at::TensorOptions options = dout.options();
  const std::int64_t tokens = dout.size(0);
  dout.reset();
  kept.projected.reset();
  kept.softmax = {};
  const auto rows = [&](std::int64_t width) { return at::empty({tokens, width}, options); };
  at::Tensor dprojected = rows(spec_.first_width() + spec_.key_value_rank + spec_.layout.rotary_dim);
  at::Tensor dq = query_ ? rows(spec_.layout.query_width()) : dprojected.narrow(1, 0, spec_.first_width());
  at::Tensor dkv = rows(spec_.layout.key_value_width());
  const RotaryRows& rotary = context.rotary;
  if (const at::Tensor scale = query_scale(rotary, gradients.q.scalar_type()); scale.defined())
    gradients.q.mul_(scale.unsqueeze(1));
  ops::latent_heads_backward(std::exchange(gradients, {}), rotary->cos, rotary->sin, spec_.layout,
                             {dq, dkv, shared_key(dprojected)});
  const auto gradient_of = [&](std::int64_t begin, std::int64_t width) {
    return through_projections ? dprojected.narrow(1, begin, width) : at::Tensor();
  };
  backward(key_value_, std::exchange(dkv, {}), key_value_latent(kept.latents), weights, context,
           kept.key_value_latent, gradient_of(spec_.first_width(), spec_.key_value_rank));
  if (query_) {
    backward(*query_, std::exchange(dq, {}), query_latent(kept.latents), weights, context, kept.query_latent,
             gradient_of(0, spec_.query_rank));
  }
  kept.latents.reset();
  if (!through_projections) return {};
  TokenMixerGradients result;
  result.inputs.push_back(
      in_->backward(std::exchange(dprojected, {}), weights, context, kept.in_linear, input_gradient));
  result.dx = std::exchange(result.inputs.front().dx, {});
  return result;
}

}  // namespace lorikeet::nn
