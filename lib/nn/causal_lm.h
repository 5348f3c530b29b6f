#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/decoder_layer.h"
#include "nn/model_shape.h"

namespace lorikeet::nn {

struct CausalLMSpec {
  ModelShape shape;
  std::string embedding_name = "model.embed_tokens";
  double embedding_scale = 1;
  std::optional<RotarySpec> rotary;
  std::vector<DecoderLayerSpec> layers;
  NormSpec final_norm;
  HeadSpec head;
};

/// A decoder-only language model over packed batches. Knows nothing of adapters: they come in by the factory.
class CausalLM {
 public:
  /// Declares all weights; `store().allocate` and loading come after.
  CausalLM(const CausalLMSpec& spec, LinearFactory& factory);

  const ModelShape& shape() const { return spec_.shape; }
  WeightStore& store() { return store_; }
  const WeightStore& store() const { return store_; }

  /// Full activation checkpointing by decoder layer; `anchor` as in `checkpointed`.
  void enable_checkpointing(at::Tensor anchor) { checkpoint_anchor_ = std::move(anchor); }

  /// Normed hidden states [T, D] of a batch.
  at::Tensor hidden_states(const ForwardContext& context) const;
  /// Sum of the negative log-likelihoods over the batch's labels; see Head::loss_sum.
  at::Tensor loss_sum(double loss_scale, const ForwardContext& context) const;
  /// fp32 [L].
  at::Tensor token_nll(const ForwardContext& context) const;
  /// Logits [rows, vocabulary] of the given rows (int64), or of all rows when undefined.
  at::Tensor logits(const ForwardContext& context, const at::Tensor& rows = {}) const;

 private:
  at::Tensor embed(const at::Tensor& tokens) const;
  static void signal_before(std::int64_t layer, Hidden& hidden, const ForwardContext& context);

  CausalLMSpec spec_;
  DType compute_;
  WeightStore store_;
  std::shared_ptr<const ops::FrozenWeight> embedding_;
  std::optional<RotaryTable> rotary_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::optional<Norm> final_norm_;
  std::unique_ptr<Head> head_;
  at::Tensor checkpoint_anchor_;
};

}  // namespace lorikeet::nn
