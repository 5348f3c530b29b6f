#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/memory_saving.h"
#include "nn/attention.h"
#include "nn/experts.h"
#include "nn/gated_delta_net.h"
#include "nn/layer_inputs.h"
#include "nn/mamba2.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/short_conv.h"

namespace lorikeet::nn {

/// Names and options of one decoder layer. With pre(x) = x where a norm before a block is absent, post(y) = y
/// where one behind it is, and m the residual multiplier, a layer in sequence is
///   x += m post(attention(pre(x)));   x += m post(mlp(pre(x)))
/// which is Llama's with norms before, OLMo 2's with norms behind, Gemma 2's with both; a parallel layer is
///   x += m (post(attention(n)) + post(mlp(n')))
/// with n = pre(x), and n' = n (Falcon-7B) or, where the MLP has a norm of its own, that norm of x (NeoX).
struct DecoderLayerSpec {
  std::int64_t index;
  AttentionSpec attention;                     ///< not read where another mixer is in its place
  std::optional<GatedDeltaNetSpec> delta_net;  ///< in place of attention
  std::optional<ShortConvSpec> short_conv;     ///< in place of attention
  std::optional<Mamba2Spec> mamba2;            ///< in place of attention
  MlpSpec mlp;                                 ///< not read where there are experts
  /// In place of the MLP. Where these have norms of their own, they and the shared expert read the stream
  /// itself: there is no mlp_norm then.
  std::optional<ExpertsSpec> experts;
  std::optional<NormSpec> attention_norm;
  std::optional<NormSpec> mlp_norm;
  std::optional<NormSpec> post_attention_norm;
  std::optional<NormSpec> post_mlp_norm;
  bool parallel = false;
  LayerRotary rotary = LayerRotary::kGlobal;
  double residual_multiplier = 1;
  std::optional<LayerInputSpec> layer_input = {};  ///< what is added to the stream behind the MLP
  /// Name of a frozen number that the stream behind the layer is multiplied by (Gemma 4); empty: there is
  /// none.
  std::string output_scale = {};

  /// Whether tokens meet in attention.
  bool attends() const { return !delta_net && !short_conv && !mamba2; }
  /// The linear modules of the block in which tokens meet: the groups before they do, which read its input
  /// or, behind those, latents made of it; and its output.
  std::vector<GroupSpec> mixer_inputs() const;
  GroupSpec mixer_output() const;
  /// The MLP that every token passes: the layer's, or its shared expert; nothing where there is none.
  std::optional<MlpSpec> dense_mlp() const;
};

/// What a layer keeps for its backward. `input` is enough to compute the rest again, and the MLP computes its
/// `up` again where that isn't there.
struct LayerKept {
  at::Tensor input;  ///< [T, D], the stream's value
  NormKept attention_norm, mlp_norm, post_attention_norm, post_mlp_norm;
  TokenMixerKept attention;  ///< or of the mixer in its place
  FeedForwardKept mlp;
  LayerInputKept layer_input;
};

/// Every tensor of it, those that are undefined included; some share their memory.
std::vector<at::Tensor*> tensors_of(LayerKept& kept);

/// Gives up what `grade` has backward compute again.
void drop_recomputed(LayerKept& kept, config::ActivationCheckpointing grade);

/// One decoder layer over a unit of frozen weights: the unit of recomputation and of sharding.
class DecoderLayer {
 public:
  /// Throws Error where a block has neither a norm before nor one behind it.
  DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightStore& store);

  /// The stream after this layer, of the context's output rows where it has some. `kept`, unless it is null,
  /// gets what backward needs.
  Hidden forward(Hidden hidden, const UnitLoan& weights, const ForwardContext& context,
                 LayerKept* kept) const;
  /// From the gradient of the stream after this layer that of the stream before it, [T, D], or nothing
  /// without `input_gradient`; adds the gradients of what is trainable in the layer. Uses `kept` up.
  at::Tensor backward(at::Tensor gradient, const UnitLoan& weights, const ForwardContext& context,
                      LayerKept& kept, bool input_gradient) const;

  /// Whether anything of the layer is trainable.
  bool learns() const {
    return attention_->learns() || mlp_->learns() || (layer_input_ && layer_input_->learns());
  }
  const WeightUnit& unit() const { return *unit_; }

 private:
  DecoderLayer(const DecoderLayerSpec& spec, LinearFactory& factory, WeightUnit& unit);

  // Multiplied by the output scale, in its own dtype.
  at::Tensor scaled(const at::Tensor& stream) const;

  const WeightUnit* unit_;
  bool parallel_;
  double residual_multiplier_;
  std::optional<Norm> attention_norm_;
  std::unique_ptr<TokenMixer> attention_;  // or the mixer in its place
  std::optional<Norm> post_attention_norm_;
  std::optional<Norm> mlp_norm_;
  std::unique_ptr<FeedForward> mlp_;
  std::optional<Norm> post_mlp_norm_;
  std::optional<LayerInput> layer_input_;
  std::optional<std::size_t> output_scale_;
};

}  // namespace lorikeet::nn
