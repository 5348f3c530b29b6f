#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/checkpoint_names.h"
#include "nn/decoder_layer.h"
#include "nn/model_shape.h"

namespace lorikeet::nn {

struct CausalLMSpec {
  ModelShape shape;
  std::string embedding_name = "model.embed_tokens";
  double embedding_scale = 1;
  bool embedding_scale_rounded = false;              ///< to the compute dtype before it multiplies (Gemma)
  std::int64_t padding_id = -1;                      ///< EmbeddingSpec's
  std::optional<RotarySpec> rotary;                  ///< of layers with LayerRotary::kGlobal
  std::optional<RotarySpec> local_rotary;            ///< of layers with LayerRotary::kLocal
  std::optional<LayerInputsSpec> layer_inputs = {};  ///< of layers that have a layer_input
  std::vector<DecoderLayerSpec> layers;
  NormSpec final_norm;
  HeadSpec head;
  io::CheckpointNames checkpoint_names;
};

/// A decoder-only language model over packed batches. Knows nothing of adapters: they come in by the factory.
/// The parts are public, for the step that trains them; forward passes without gradients are here.
class CausalLM {
 public:
  /// Declares all weights; `store().allocate` and loading come after.
  CausalLM(const CausalLMSpec& spec, LinearFactory& factory);

  const CausalLMSpec& spec() const { return spec_; }
  const ModelShape& shape() const { return spec_.shape; }
  WeightStore& store() { return store_; }
  const WeightStore& store() const { return store_; }

  /// The longest sequence whose cached keys stay valid when it grows by one token more: past it LongRoPE
  /// rotates all of them by other angles. None where that never happens.
  std::optional<std::int64_t> cache_switch_length() const;
  /// Tables that passes read beside the weights, as they are now: a longer sequence replaces them.
  std::vector<at::Tensor> rotary_tables() const;
  /// `context` of a new pass: with the rotary rows of its batch, and what layers leave for later ones.
  ForwardContext context(ForwardContext context) const;
  /// What layer i knows of a pass: output rows are those of the last layer alone.
  ForwardContext of_layer(std::int64_t i, ForwardContext context) const;
  /// The stream before the first layer; puts the inputs of layers that have such into the context's pass.
  /// `kept`, unless it is null, gets what the embedding's backward needs, `inputs_kept` that of the inputs.
  Hidden embed(const ForwardContext& context, EmbeddingKept* kept = nullptr,
               LayerInputsKept* inputs_kept = nullptr) const;
  const Embedding& embedding() const { return *embedding_; }
  const std::vector<std::unique_ptr<DecoderLayer>>& layers() const { return layers_; }
  /// Null where no layer has an input beside the stream.
  const LayerInputs* layer_inputs() const { return layer_inputs_ ? &*layer_inputs_ : nullptr; }
  /// Whether their backward has anything to do: they are made of the embedding's rows.
  bool layer_inputs_learn() const {
    return layer_inputs_ && (layer_inputs_->learns() || embedding_->learns());
  }
  const Norm& final_norm() const { return *final_norm_; }
  const Head& head() const { return *head_; }
  /// The unit that the head's table lies in: the embedding's where it is tied.
  const WeightUnit& head_unit() const { return *head_table_.unit; }

  /// The lowest layer that backward passes: 0 where the embedding or layers' inputs learn, else the lowest
  /// with anything trainable; the number of layers where none has.
  std::int64_t first_trained_layer() const;
  /// Units in the order of their use: forward, and, in training, the layers back to first_trained_layer.
  std::vector<const WeightUnit*> units_in_order(bool training) const;

  /// Normed hidden states [R, D] of the given rows (int64 [R]) of a batch, or of all rows where undefined.
  at::Tensor hidden_states(const ForwardContext& context, const at::Tensor& rows = {}) const;
  /// Of each of the batch's labels, fp32 [L].
  at::Tensor token_nll(const ForwardContext& context) const;
  /// Logits [R, vocabulary] of the given rows (int64 [R]), or of all rows where undefined.
  at::Tensor logits(const ForwardContext& context, const at::Tensor& rows = {}) const;

 private:
  CausalLMSpec spec_;
  WeightStore store_;
  MatrixPlace embedding_table_;
  std::unique_ptr<Embedding> embedding_;
  std::optional<RotaryTable> rotary_, local_rotary_;
  std::optional<LayerInputs> layer_inputs_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::optional<Norm> final_norm_;
  MatrixPlace head_table_;
  std::unique_ptr<Head> head_;
};

}  // namespace lorikeet::nn
