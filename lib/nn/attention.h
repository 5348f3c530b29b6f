#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/latent_spec.h"
#include "nn/norm.h"
#include "nn/token_mixer.h"

namespace lorikeet::nn {

/// What a family calls its modules, after the block's prefix.
struct AttentionNames {
  std::string q = "q_proj", k = "k_proj", v = "v_proj", output = "o_proj";
};

/// Norms of queries and keys before their rotation: over each head (Qwen 3, Gemma 3), or over all heads at
/// once (OLMo 2). The norms' sizes tell: head_dim, or heads * head_dim and kv_heads * head_dim.
struct QkNormSpec {
  NormSpec q, k;
};

struct AttentionSpec {
  std::string prefix;  ///< "model.layers.0.self_attn"
  std::int64_t hidden_size;
  ops::HeadLayout layout;
  bool qkv_bias = false;
  bool output_bias = false;
  ops::AttentionOptions options;  ///< scale, window, soft-cap
  AttentionNames names;
  std::optional<FusedModule> fused_qkv;  ///< absent: q, k and v are modules of their own
  std::optional<QkNormSpec> qk_norm;
  /// The module of q holds, of each head, q and then a gate: what attention gives is multiplied by its
  /// sigmoid. Not where q, k and v are fused.
  bool output_gate = false;
  /// A learned score for each query head that takes part in its softmax and has no value
  /// (ops/attention/sinks.h): the vector "<prefix>.sinks". It is frozen.
  bool sinks = false;
  /// The eps of an RMS norm without weight over each head of v; absent: there is none.
  std::optional<double> value_norm_eps = {};
  /// Values are what the module of k makes, before its norm and its rotation: there is no module of v. Not
  /// where q, k and v are fused.
  bool keys_as_values = false;
  /// The earlier layer whose keys and values this one reads in place of its own, with heads of the same
  /// sizes; absent: it has its own. It has no modules of k and v then. Not where q, k and v are fused, or
  /// with a gate.
  std::optional<std::int64_t> keys_of = {};
  bool lends_keys = false;  ///< a later layer reads this one's keys and values
  /// Keys and values, and perhaps queries, are made of latents (LatentAttention): `layout` is that of the
  /// heads made of them, `qkv_bias` that of the modules that read the block's input. Not with what stands
  /// above from `fused_qkv` on.
  std::optional<LatentSpec> latent = {};

  /// The modules that read the block's input: those that make [q heads | gates | k heads | v heads], without
  /// parts that there are none of, or latents.
  std::vector<Module> qkv_modules() const;
  Module output_module() const;
  /// Of the rows that the output's module reads.
  std::int64_t output_width() const {
    return layout.heads * (latent ? latent->layout.value_dim : layout.head_dim);
  }
};

/// What rotated queries of these rows are multiplied by, [T, 1] in their dtype; undefined where that is 1.
at::Tensor query_scale(const RotaryRows& rotary, at::ScalarType dtype);

/// Attention when decoding, over the cache's keys and values of layer `layer`: those of qkv [T,
/// layout.width()] go there first; rows of queries alone, [T, heads * head_dim], have none. -> [T, heads *
/// head_dim].
at::Tensor cached_attention(const at::Tensor& qkv, const ops::HeadLayout& layout, std::int64_t layer,
                            const ForwardContext& context, const ops::AttentionOptions& options,
                            const at::Tensor& sinks = {});

/// Attention: projections to queries, keys and values, their norms and rotation, attention over each sequence
/// (with the cache's keys when decoding), its gate and the output projection.
class Attention : public TokenMixer {
 public:
  /// Declares its tensors in `unit`. `layer` is its place in caches. Throws Error on norms' sizes that don't
  /// fit, and for a gate, keys as values or keys of another layer beside what they can't be with.
  Attention(const AttentionSpec& spec, std::int64_t layer, LayerRotary rotary, LinearFactory& factory,
            WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     TokenMixerKept* kept, ops::LeftTerms* left) const override;
  TokenMixerGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                               TokenMixerKept& kept, bool input_gradient) const override;
  void add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override {
    qkv_->add_a_gradients(gradients.inputs.front(), x, context);
  }
  bool learns() const override { return qkv_->learns() || out_->learns(); }

 private:
  // The rotary rows of this layer, empty where it has no rotation.
  const RotaryRows& rotary_rows(const ForwardContext& context) const;
  ops::RotaryAngles rotary(const ForwardContext& context) const;
  ops::QkNorms norms() const;
  // [heads], undefined where there are none.
  at::Tensor sinks() const { return sinks_ ? unit_->tensor(*sinks_) : at::Tensor(); }
  // Whether `prepare` works beside what was projected, which backward reads as it was.
  bool keeps_projected() const { return q_norm_ || gated_ || value_norm_ || keys_as_values_ || keys_of_; }
  // [T, q | k | v] of what was projected: itself where it is that already.
  at::Tensor packed(const at::Tensor& projected) const;
  // The gradient of what was projected, but for its gates, from that of `packed`'s result, which it may
  // change.
  at::Tensor packed_backward(at::Tensor dqkv) const;
  // Of packed rows [T, v heads, head_dim], a view.
  at::Tensor values(const at::Tensor& qkv) const;
  at::Tensor gates(const at::Tensor& projected) const;
  at::Tensor prepare(const at::Tensor& projected, const ForwardContext& context, TokenMixerKept* kept,
                     const std::vector<ops::LowRankTerm>& terms = {}) const;
  // The same of a layer that reads another's keys, which the pass has; while decoding of the queries alone,
  // since the cache has them.
  at::Tensor prepare_queries(const at::Tensor& projected, const ForwardContext& context,
                             TokenMixerKept* kept) const;
  // Of rotated queries; adds the gradients of keys and values to the pass.
  at::Tensor queries_backward(const ops::HeadGradients& gradients, const ForwardContext& context,
                              const TokenMixerKept& kept) const;
  // The packed gradient of q, k and v as they were projected.
  at::Tensor prepare_backward(ops::HeadGradients gradients, const ForwardContext& context,
                              const TokenMixerKept& kept) const;
  at::Tensor cached(const at::Tensor& qkv, const ForwardContext& context) const;

  std::int64_t layer_;
  LayerRotary rotary_;
  ops::HeadLayout layout_;
  ops::AttentionOptions options_;
  bool gated_;
  bool keys_as_values_;
  std::optional<std::int64_t> keys_of_;
  bool lends_keys_;
  const WeightUnit* unit_;
  std::unique_ptr<LinearGroup> qkv_;
  std::optional<Norm> q_norm_, k_norm_;
  std::optional<ops::NormOptions> value_norm_;
  std::optional<std::size_t> sinks_;
  std::unique_ptr<LinearGroup> out_;
};

}  // namespace lorikeet::nn
