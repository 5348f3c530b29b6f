#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/memory_saving.h"
#include "nn/causal_lm.h"
#include "peft/lora.h"

namespace lorikeet::train {

/// Floating-point operations of one LoRA training step (a multiply-add counts two), forward and backward,
/// without recomputation:
///   4 x frozen linear parameters x rows              forward and input gradient; frozen weights get no
///                                                     gradient, and the embedding is a lookup
/// + 6 x trained adapter parameters x rows             forward, input and weight gradient
/// + 4 x frozen adapter parameters x rows              LoRA-FA's A; what PiSSA and OLoRA subtract
/// where rows are all tokens, but behind the last layer's attention those with a label (nn::OutputRows)
/// + 4 x hidden x vocabulary x label tokens            the head
/// + 6 x the head's adapter parameters x label tokens
/// + 2 x elements of a head trained whole x label tokens   its gradient; an embedding's is no product
/// + 3 x 2 x heads x head_dim x squares                AttentionSquares of the real causal sequences
/// + 3 x 7 x elements of states x tokens               gated delta nets, by the rule itself: a state is
///                                                     decayed, read with k, added to, read with q; that
///                                                     chunks take more isn't counted, nor convolutions
/// + 3 x 5 x elements of states x tokens               Mamba 2 layers, likewise: decayed, added to, read
///                                                     with C
/// The usual 6N counts a weight gradient that LoRA never computes.
struct StepSize {
  std::int64_t tokens = 0;
  std::int64_t label_tokens = 0;
  std::int64_t attention_squares = 0;  ///< AttentionSquares::of summed over sequences
};

/// The width of all heads' queries, which is that of keys and of values; where keys and values differ, the
/// mean of both: zeros that the heads of latent attention are filled up by are no work of the model.
double heads_width(const nn::AttentionSpec& attention);

/// Twice the pairs of a query and a key that attention sees, summed over a model's layers. A layer whose
/// heads are together wider than the shape's, as Gemma 4 has them, counts so many times more.
class AttentionSquares {
 public:
  AttentionSquares(const std::vector<nn::DecoderLayerSpec>& layers, const nn::ModelShape& shape);

  /// Of a causal sequence of s tokens: s^2 a layer, or, where a window of w < s ends what a query sees,
  /// s^2 - (s - w)^2.
  std::int64_t of(std::int64_t length) const;

 private:
  std::vector<std::pair<std::int64_t, double>> layers_by_window_;  // window, 0 for none; layers
};

/// Elements of an adapter's tensors that are multiplied: all but the looked-up factor of an embedding's
/// adapter and its table; of experts' adapters the share that a token passes.
struct AdapterSize {
  std::int64_t trained = 0;     ///< factors with a gradient
  std::int64_t frozen = 0;      ///< and without
  std::int64_t head = 0;        ///< factors of the head's adapter
  std::int64_t head_table = 0;  ///< of a head that is trained whole
  std::int64_t gate_up = 0;     ///< of trained and frozen ones, those beside MLPs' gate and up
  /// Of trained, frozen and gate_up: those behind the last layer's attention.
  std::int64_t output_trained = 0, output_frozen = 0, output_gate_up = 0;
};

/// The share of all tokens that pass a module: k / E of the experts', which are alike in all layers, else 1.
class TokenShares {
 public:
  explicit TokenShares(const nn::CausalLMSpec& spec);

  double of(const std::string& module) const { return is_expert(module) ? share_ : 1; }
  bool is_expert(const std::string& module) const;

 private:
  double share_ = 1;
  std::vector<std::string> prefixes_;  // what names of a layer's experts begin with
};

AdapterSize adapter_size(const peft::LoraAdapters& adapters, const nn::CausalLMSpec& spec);

double step_flops(const nn::ModelShape& shape, const AdapterSize& adapter, const StepSize& size);

/// What activation checkpointing adds: of every layer what `grade` has its backward compute again.
double recomputed_flops(const nn::CausalLMSpec& spec, const AdapterSize& adapter, const StepSize& size,
                        config::ActivationCheckpointing grade);

}  // namespace lorikeet::train
