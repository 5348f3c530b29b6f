#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention.h"
#include "ops/latent_heads/latent_heads.h"

namespace lorikeet::nn {

/// Multi-head latent attention: projections to latents, norms of these, projections from them to queries,
/// keys and values, attention over each sequence and the output projection. The cache holds whole keys and
/// values, not latents.
class LatentAttention : public TokenMixer {
 public:
  /// Declares its tensors in `unit`. `layer` is its place in caches. Throws Error for what it can't be with:
  /// no rotation, and all that AttentionSpec has beside options, biases of both ends and names of the output.
  LatentAttention(const AttentionSpec& spec, std::int64_t layer, LayerRotary rotary, LinearFactory& factory,
                  WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     TokenMixerKept* kept, ops::LeftTerms* left) const override;
  TokenMixerGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                               TokenMixerKept& kept, bool input_gradient) const override;
  void add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override {
    in_->add_a_gradients(gradients.inputs.front(), x, context);
  }
  bool learns() const override;

 private:
  // A latent: its norm and the projection that reads it.
  struct Latent {
    Norm norm;
    std::unique_ptr<LinearGroup> projection;
  };

  // Declares a latent's tensors. `reader`: the group that reads it.
  Latent latent(const std::string& norm, const GroupSpec& reader, LinearFactory& factory,
                WeightUnit& unit) const;
  // Of what in_ has made: rows that begin with the latents, [T, at least the sum of ranks].
  at::Tensor latents(const at::Tensor& projected) const;
  at::Tensor query_latent(const at::Tensor& latents) const;
  at::Tensor key_value_latent(const at::Tensor& latents) const;
  at::Tensor shared_key(const at::Tensor& projected) const;

  static at::Tensor forward(const Latent& latent, const at::Tensor& values, const UnitLoan& weights,
                            const ForwardContext& context, LatentKept* kept);
  // Adds the projection's gradients, of dy; writes the latent's into `gradient`, unless that is undefined.
  static void backward(const Latent& latent, const at::Tensor& dy, const at::Tensor& values,
                       const UnitLoan& weights, const ForwardContext& context, const LatentKept& kept,
                       const at::Tensor& gradient);
  // Attention's output [T, H head_dim] without what heads were filled up by, and back.
  at::Tensor narrowed(const at::Tensor& out) const;
  at::Tensor filled_up(const at::Tensor& values) const;

  std::int64_t layer_;
  LatentSpec spec_;
  ops::HeadLayout heads_;
  ops::AttentionOptions options_;
  std::unique_ptr<LinearGroup> in_;
  std::optional<Latent> query_;
  Latent key_value_;
  std::unique_ptr<LinearGroup> out_;
};

}  // namespace lorikeet::nn
