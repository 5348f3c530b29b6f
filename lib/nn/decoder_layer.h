#pragma once

#include <optional>
#include <string>

#include "nn/blocks.h"

namespace lorikeet::nn {

/// Names and options of one decoder layer. Which norms exist decides its form:
///   pre-norm (Llama):       x += attention(norm(x));        x += mlp(norm(x))
///   sandwich (Gemma 2):     x += post(attention(norm(x)));  x += post(mlp(norm(x)))
///   parallel (Cohere, ...): x += attention(n) + mlp(n) with n = norm(x), each with its post-norm where one
///   is given
struct DecoderLayerSpec {
  std::int64_t index;
  AttentionSpec attention;
  MlpSpec mlp;
  NormSpec attention_norm;
  std::optional<NormSpec> mlp_norm;             ///< absent in parallel form
  std::optional<NormSpec> post_attention_norm;  ///< norm of the attention's output before it is added
  std::optional<NormSpec> post_mlp_norm;
  bool parallel = false;
  bool rotary = true;
};

/// One decoder layer over a unit of frozen weights: the unit of activation checkpointing and of sharding.
class DecoderLayer {
 public:
  /// Throws Error when the MLP's norm is missing, or given in parallel form.
  DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightStore& store);

  /// The stream after this layer.
  Hidden forward(Hidden hidden, const RotaryRows& rotary, const ForwardContext& context) const;

 private:
  DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightUnit& unit);

  bool parallel_;
  bool rotary_;
  Norm attention_norm_;
  AttentionIn attention_in_;
  AttentionOut attention_out_;
  std::optional<Norm> post_attention_norm_;
  std::optional<Norm> mlp_norm_;
  GatedMlp mlp_;
  std::optional<Norm> post_mlp_norm_;
};

}  // namespace lorikeet::nn
