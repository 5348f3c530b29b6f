#include "nn/decoder_layer.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include <utility>

#include "base/error.h"
#include "nn/experts_beside_mlp.h"
#include "nn/latent_attention.h"
#include "nn/output_rows.h"
#include "nn/shared_expert.h"

namespace lorikeet::nn {
namespace {

std::optional<Norm> maybe_norm(const std::optional<NormSpec>& spec, WeightUnit& unit, DType storage) {
  if (!spec) return std::nullopt;
  return Norm(*spec, unit, storage);
}

const DecoderLayerSpec& checked(const DecoderLayerSpec& spec) {
  const auto require = [&](bool found, const char* block) {
    if (found) return;
    throw Error("[layer " + std::to_string(spec.index) + "] expected a norm before or behind its " + block +
                ", got none");
  };
  require(spec.attention_norm || spec.post_attention_norm, "attention");
  require(spec.mlp_norm || spec.post_mlp_norm || (spec.parallel && spec.attention_norm), "MLP");
  if (spec.experts && spec.experts->branch_norms && (spec.mlp_norm || spec.parallel)) {
    throw Error(
        "[layer " + std::to_string(spec.index) +
        "] expected no norm before a block whose branches have norms of their own, and none beside it");
  }
  return spec;
}

std::unique_ptr<TokenMixer> token_mixer(const DecoderLayerSpec& spec, LinearFactory& factory,
                                        WeightUnit& unit) {
  if (spec.delta_net) return std::make_unique<GatedDeltaNet>(*spec.delta_net, spec.index, factory, unit);
  if (spec.short_conv) return std::make_unique<ShortConv>(*spec.short_conv, spec.index, factory, unit);
  if (spec.mamba2) return std::make_unique<Mamba2>(*spec.mamba2, spec.index, factory, unit);
  if (spec.attention.latent)
    return std::make_unique<LatentAttention>(spec.attention, spec.index, spec.rotary, factory, unit);
  return std::make_unique<Attention>(spec.attention, spec.index, spec.rotary, factory, unit);
}

std::unique_ptr<FeedForward> feed_forward(const DecoderLayerSpec& spec, LinearFactory& factory,
                                          WeightUnit& unit) {
  if (spec.experts && spec.experts->branch_norms)
    return std::make_unique<ExpertsBesideMlp>(*spec.experts, factory, unit);
  if (spec.experts && spec.experts->shared)
    return std::make_unique<SharedExpert>(*spec.experts, factory, unit);
  if (spec.experts) return std::make_unique<Experts>(*spec.experts, factory, unit);
  return std::make_unique<Mlp>(spec.mlp, factory, unit);
}

// The input of a block: a norm of the stream, or its value.
at::Tensor pre_forward(const std::optional<Norm>& norm, Hidden& hidden, NormKept* kept) {
  if (norm) return norm->forward(hidden, kept);
  hidden = {hidden.value(), {}};
  if (kept != nullptr) kept->input = hidden.residual;
  return hidden.residual;
}

at::Tensor pre_again(const std::optional<Norm>& norm, const NormKept& kept) {
  return norm ? norm->again(kept) : kept.input;
}

// The gradient of the stream before a block: `gradient` is that of the stream past it, `dx` that of the
// block's input; nothing without dx. `x`, unless it is null, gets the block's input once more.
at::Tensor pre_backward(const std::optional<Norm>& norm, const at::Tensor& dx, const at::Tensor& gradient,
                        const NormKept& kept, at::Tensor* x) {
  if (norm && dx.defined()) return norm->backward(dx, gradient, kept, x);
  if (x != nullptr) *x = pre_again(norm, kept);
  return dx.defined() ? dx + gradient : at::Tensor();
}

// What a block adds to the stream: its output normed, where there is such a norm, times the multiplier.
at::Tensor post_forward(const std::optional<Norm>& norm, at::Tensor out, double multiplier, NormKept* kept) {
  if (norm) out = norm->forward(out, kept);
  // A tensor, since mul_ with a number rounds it to the tensor's dtype on a CPU.
  return multiplier == 1 ? out : out.mul_(c10::scalar_to_tensor(multiplier));
}

at::Tensor post_backward(const std::optional<Norm>& norm, const at::Tensor& gradient, double multiplier,
                         NormKept& kept) {
  at::Tensor dy = multiplier == 1 ? gradient : gradient * c10::scalar_to_tensor(multiplier);
  if (norm) dy = norm->backward(dy, {}, std::exchange(kept, {}));
  return dy;
}

void add_tensors(NormKept& kept, std::vector<at::Tensor*>& all) {
  all.insert(all.end(), {&kept.input, &kept.statistics.mean, &kept.statistics.rstd});
}

void add_tensors(FeedForwardKept& kept, std::vector<at::Tensor*>& all) {
  all.insert(all.end(), {&kept.up, &kept.router_logits, &kept.shared_gate});
  for (std::vector<LinearKept>* linears : {&kept.up_linear, &kept.down_linear}) {
    for (LinearKept& linear : *linears) all.insert(all.end(), {&linear.low_rank, &linear.product});
  }
  ops::Routing& routing = kept.routing;  // its ends, a number an expert, stay where they are
  all.insert(all.end(),
             {&routing.experts, &routing.weights, &routing.tokens, &routing.places, &routing.unscaled});
  BranchNormsKept& norms = kept.branch_norms;
  for (NormKept* norm : {&norms.input, &norms.mlp_output, &norms.experts_output}) add_tensors(*norm, all);
  for (FeedForwardKept& shared : kept.shared) add_tensors(shared, all);
}

void drop_up(FeedForwardKept& kept) {
  kept.up.reset();
  kept.up_linear.clear();
  for (FeedForwardKept& shared : kept.shared) drop_up(shared);
}

// The kept parts of a layer that may keep nothing.
template <typename Part>
Part* part(LayerKept* kept, Part LayerKept::*member) {
  return kept != nullptr ? &(kept->*member) : nullptr;
}

}  // namespace

std::vector<GroupSpec> DecoderLayerSpec::mixer_inputs() const {
  if (delta_net)
    return {{delta_net->input_modules(), delta_net->hidden_size},
            {delta_net->gate_modules(), delta_net->hidden_size}};
  if (short_conv) return {{{short_conv->input_module()}, short_conv->hidden_size}};
  if (mamba2) return {mamba2->input_group()};
  std::vector<GroupSpec> groups{{attention.qkv_modules(), attention.hidden_size, attention.qkv_bias}};
  if (attention.latent) {
    for (GroupSpec& group : attention.latent->inner_groups(attention.prefix)) groups.push_back(group);
  }
  return groups;
}

GroupSpec DecoderLayerSpec::mixer_output() const {
  if (delta_net) return {{delta_net->output_module()}, delta_net->value_width()};
  if (short_conv) return {{short_conv->output_module()}, short_conv->hidden_size};
  if (mamba2) return mamba2->output_group();
  return {{attention.output_module()}, attention.output_width(), attention.output_bias};
}

std::optional<MlpSpec> DecoderLayerSpec::dense_mlp() const {
  if (!experts) return mlp;
  if (experts->shared) return experts->shared_mlp();
  return std::nullopt;
}

std::vector<at::Tensor*> tensors_of(LayerKept& kept) {
  std::vector<at::Tensor*> all{&kept.input, &kept.attention.projected, &kept.attention.gates,
                               &kept.attention.out, &kept.attention.latents};
  add_tensors(kept.mlp, all);
  for (NormKept* norm : {&kept.attention_norm, &kept.mlp_norm, &kept.post_attention_norm, &kept.post_mlp_norm,
                         &kept.layer_input.norm})
    add_tensors(*norm, all);
  for (ops::NormStatistics* statistics :
       {&kept.attention.qk_norm.q, &kept.attention.qk_norm.k, &kept.attention.value_norm,
        &kept.attention.query_latent.norm, &kept.attention.key_value_latent.norm})
    all.insert(all.end(), {&statistics->mean, &statistics->rstd});
  const auto add = [&](LinearKept& linear) { all.insert(all.end(), {&linear.low_rank, &linear.product}); };
  add(kept.attention.in_linear);
  add(kept.attention.gates_linear);
  add(kept.attention.out_linear);
  add(kept.attention.query_latent.linear);
  add(kept.attention.key_value_latent.linear);
  all.insert(all.end(), {&kept.layer_input.x, &kept.layer_input.gate});
  add(kept.layer_input.gate_linear);
  add(kept.layer_input.projection_linear);
  ops::AttentionStatistics& softmax = kept.attention.softmax;
  all.insert(all.end(), {&softmax.lse, &softmax.rng_state, &softmax.unused});
  return all;
}

void drop_recomputed(LayerKept& kept, config::ActivationCheckpointing grade) {
  switch (grade) {
    case config::ActivationCheckpointing::kNone: return;
    case config::ActivationCheckpointing::kMlp: drop_up(kept.mlp); return;
    case config::ActivationCheckpointing::kFull: kept = {.input = std::move(kept.input)}; return;
  }
}

DecoderLayer::DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightStore& store)
    : DecoderLayer(checked(spec), factory, store.add_unit("layer " + std::to_string(spec.index))) {}

// Members are declared in the unit in the order of use.
DecoderLayer::DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightUnit& unit)
    : unit_(&unit),
      parallel_(spec.parallel),
      residual_multiplier_(spec.residual_multiplier),
      attention_norm_(maybe_norm(spec.attention_norm, unit, factory.policy().base_storage)),
      attention_(token_mixer(spec, factory, unit)),
      post_attention_norm_(maybe_norm(spec.post_attention_norm, unit, factory.policy().base_storage)),
      mlp_norm_(maybe_norm(spec.mlp_norm, unit, factory.policy().base_storage)),
      mlp_(feed_forward(spec, factory, unit)),
      post_mlp_norm_(maybe_norm(spec.post_mlp_norm, unit, factory.policy().base_storage)) {
  if (spec.layer_input) layer_input_.emplace(*spec.layer_input, spec.index, factory, unit);
  if (!spec.output_scale.empty())
    output_scale_ = unit.declare({{spec.output_scale, {1}, factory.policy().base_storage}});
}

at::Tensor DecoderLayer::scaled(const at::Tensor& stream) const {
  return stream * unit_->tensor(*output_scale_).to(stream.scalar_type());
}

Hidden DecoderLayer::forward(Hidden hidden, const UnitLoan& weights, const ForwardContext& context,
                             LayerKept* kept) const {
  const double m = residual_multiplier_;
  // What goes to the stream as it is may leave its low-rank terms to the next norm: down's are left to that
  // of the next layer, which has one where this one does, or to the final one. (Hidden::value adds them too.)
  const bool as_it_is = !parallel_ && m == 1;
  ops::LeftTerms of_attention(ops::add_norm_adds), of_mlp(ops::add_norm_adds);
  at::Tensor x = pre_forward(attention_norm_, hidden, part(kept, &LayerKept::attention_norm));
  if (kept != nullptr) kept->input = hidden.residual;
  at::Tensor beside;  // in parallel form what attention adds, until the MLP's is there
  at::Tensor& attended = parallel_ ? beside : hidden.delta;
  attended = attention_->forward(x, weights, context, part(kept, &LayerKept::attention),
                                 as_it_is && !post_attention_norm_ && mlp_norm_ ? &of_attention : nullptr);
  attended =
      post_forward(post_attention_norm_, std::move(attended), m, part(kept, &LayerKept::post_attention_norm));
  hidden.terms = std::move(of_attention.terms);
  hidden.residual = read_rows(hidden.residual, context);
  x = parallel_ && !mlp_norm_ ? read_rows(x, context)
                              : pre_forward(mlp_norm_, hidden, part(kept, &LayerKept::mlp_norm));
  hidden.delta = mlp_->forward(x, weights, behind_attention(context), part(kept, &LayerKept::mlp),
                               as_it_is && !post_mlp_norm_ && attention_norm_ ? &of_mlp : nullptr);
  hidden.delta =
      post_forward(post_mlp_norm_, std::move(hidden.delta), m, part(kept, &LayerKept::post_mlp_norm));
  hidden.terms = std::move(of_mlp.terms);
  if (parallel_) hidden.delta.add_(beside);
  if (layer_input_) {
    hidden = {hidden.value(), {}};
    hidden.delta =
        layer_input_->forward(hidden.residual, weights, context, part(kept, &LayerKept::layer_input));
  }
  if (output_scale_) hidden = {scaled(hidden.value()), {}};
  return hidden;
}

at::Tensor DecoderLayer::backward(at::Tensor gradient, const UnitLoan& weights, const ForwardContext& context,
                                  LayerKept& kept, bool input_gradient) const {
  const double m = residual_multiplier_;
  const bool one_norm = parallel_ && !mlp_norm_;  // which feeds both blocks
  const bool through_mlp = input_gradient || (!parallel_ && attention_->learns());
  const ForwardContext behind = behind_attention(context);
  kept.input.reset();  // the norms have it
  if (output_scale_) gradient = scaled(gradient);
  if (layer_input_) {
    const bool below = input_gradient || attention_->learns() || mlp_->learns();
    const at::Tensor through = layer_input_->backward(gradient, weights, context, kept.layer_input, below);
    if (!below) return {};
    gradient = gradient + through;
  }

  if (!kept.mlp.up.defined()) {
    const at::Tensor x = one_norm ? read_rows(pre_again(attention_norm_, kept.attention_norm), context)
                                  : pre_again(mlp_norm_, kept.mlp_norm);
    mlp_->up_again(x, weights, behind, kept.mlp);
  }
  FeedForwardGradients mlp = mlp_->backward(post_backward(post_mlp_norm_, gradient, m, kept.post_mlp_norm),
                                            weights, behind, kept.mlp, through_mlp);
  at::Tensor x;
  at::Tensor past = gradient;  // of the stream, past attention: what its norm's backward adds
  if (!one_norm) {
    past = pre_backward(mlp_norm_, std::exchange(mlp.dx, {}), gradient, std::exchange(kept.mlp_norm, {}),
                        mlp.want_input() ? &x : nullptr);
    if (mlp.want_input()) mlp_->add_a_gradients(mlp, std::exchange(x, {}), behind);
    mlp = {};
  }
  if (!parallel_) {
    if (!through_mlp) return {};
    gradient = past;
  }
  TokenMixerGradients attention =
      attention_->backward(post_backward(post_attention_norm_, gradient, m, kept.post_attention_norm),
                           weights, context, kept.attention, input_gradient);
  gradient.reset();
  if (input_gradient) {
    past = read_rows_backward(past, context);
    if (one_norm) attention.dx.add_(read_rows_backward(std::exchange(mlp.dx, {}), context));
  }
  past = pre_backward(attention_norm_, std::exchange(attention.dx, {}), past, kept.attention_norm,
                      attention.want_input() || mlp.want_input() ? &x : nullptr);
  if (attention.want_input()) attention_->add_a_gradients(attention, x, context);
  if (mlp.want_input()) mlp_->add_a_gradients(mlp, read_rows(x, context), behind);
  return past;
}

}  // namespace lorikeet::nn
