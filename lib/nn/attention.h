#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/attention/attention.h"
#include "ops/qk_norm/qk_norm.h"

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

  /// The modules that make [q heads | k heads | v heads].
  std::vector<Module> qkv_modules() const;
  Module output_module() const;
};

/// What attention keeps for its backward.
struct AttentionKept {
  at::Tensor qkv;  ///< rotated; with norms of q and k as it was projected
  at::Tensor out;  ///< [T, heads * head_dim]
  ops::AttentionStatistics softmax;
  ops::QkNormStatistics qk_norm;
  LinearKept qkv_linear, out_linear;
};

/// Attention: projections to queries, keys and values, their norms and rotation, attention over each sequence
/// (with the cache's keys when decoding) and the output projection.
class Attention {
 public:
  /// Declares its tensors in `unit`. `layer` is its place in caches. Throws Error on norms' sizes that don't
  /// fit.
  Attention(const AttentionSpec& spec, std::int64_t layer, LayerRotary rotary, LinearFactory& factory,
            WeightUnit& unit);

  /// x [T, D] -> [T, D], or, where the context has output rows, [R, D]. `kept`, unless it is null, gets what
  /// backward needs beside x. `left`, unless it is null, may be left low-rank terms of the result.
  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     AttentionKept* kept, ops::LeftTerms* left = nullptr) const;
  /// As LinearGroup::backward, for the whole block; gives back what was kept on the way.
  ops::LoraLinearGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                    const ForwardContext& context, AttentionKept& kept,
                                    bool input_gradient) const;
  /// The rest of a backward, with forward's x.
  void add_a_gradients(const ops::LoraLinearGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const {
    qkv_->add_a_gradients(gradients, x, context);
  }
  bool learns() const { return qkv_->learns() || out_->learns(); }

 private:
  // The rotary rows of this layer, empty where it has no rotation.
  const RotaryRows& rotary_rows(const ForwardContext& context) const;
  ops::RotaryAngles rotary(const ForwardContext& context) const;
  // What rotated queries are multiplied by, [T, 1] in their dtype; undefined where that is 1.
  at::Tensor query_scale(const ForwardContext& context, at::ScalarType dtype) const;
  ops::QkNorms norms() const;
  at::Tensor prepare(at::Tensor qkv, const ForwardContext& context, AttentionKept* kept,
                     const std::vector<ops::LowRankTerm>& terms = {}) const;
  // The packed gradient of what was projected.
  at::Tensor prepare_backward(ops::HeadGradients gradients, const ForwardContext& context,
                              const AttentionKept& kept) const;
  at::Tensor cached(const at::Tensor& qkv, const ForwardContext& context) const;

  std::int64_t layer_;
  LayerRotary rotary_;
  ops::HeadLayout layout_;
  ops::AttentionOptions options_;
  std::unique_ptr<LinearGroup> qkv_;
  std::optional<Norm> q_norm_, k_norm_;
  std::unique_ptr<LinearGroup> out_;
};

}  // namespace lorikeet::nn
