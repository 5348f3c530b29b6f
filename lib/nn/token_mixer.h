#pragma once

#include <algorithm>
#include <vector>

#include "nn/linear.h"
#include "ops/attention/attention.h"
#include "ops/qk_norm/qk_norm.h"

namespace lorikeet::nn {

/// What latent attention keeps of one of its latents beside its values.
struct LatentKept {
  ops::NormStatistics norm;
  LinearKept linear;
};

/// What a token mixer keeps for its backward beside its input.
struct TokenMixerKept {
  /// The rows that the mixing begins with: of attention queries, keys and values, rotated in place where
  /// nothing else is done to them (of latent attention its heads); of a gated delta net those before the
  /// convolution, and its z; of a short convolution its input and gates; of a Mamba 2 layer all that its
  /// input module made.
  at::Tensor projected;
  at::Tensor gates;  ///< of a gated delta net: [T, b | a]
  at::Tensor out;    ///< what the tokens were mixed to, before any gate
  ops::AttentionStatistics softmax;
  ops::QkNormStatistics qk_norm;
  ops::NormStatistics value_norm;
  LinearKept in_linear, gates_linear, out_linear;
  at::Tensor latents;  ///< of latent attention, before their norms
  LatentKept query_latent, key_value_latent;
};

/// What a token mixer's backward gives.
struct TokenMixerGradients {
  at::Tensor dx = {};  ///< [T, D], or undefined where it wasn't asked for
  /// For add_a_gradients: of each group that reads the block's input.
  std::vector<ops::LoraLinearGradients> inputs = {};

  /// Whether add_a_gradients has something to do.
  bool want_input() const {
    return std::any_of(inputs.begin(), inputs.end(), [](const auto& group) { return group.want_input(); });
  }
};

/// A layer's block in which tokens of a sequence meet: attention, latent attention, a gated delta net, a
/// short convolution or a Mamba 2 layer.
class TokenMixer {
 public:
  virtual ~TokenMixer() = default;

  /// x [T, D] -> [T, D], or, where the context has output rows, [R, D]. `kept`, unless it is null, gets what
  /// backward needs beside x. `left`, unless it is null, may be left low-rank terms of the result.
  virtual at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                             TokenMixerKept* kept, ops::LeftTerms* left = nullptr) const = 0;
  /// x's gradient, where `input_gradient` asks for it; adds the gradients of what is trainable in the block
  /// but for those that need x: where the result says so, add_a_gradients has to follow. Gives back what was
  /// kept on the way.
  virtual TokenMixerGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                       const ForwardContext& context, TokenMixerKept& kept,
                                       bool input_gradient) const = 0;
  /// The rest of a backward, with forward's x.
  virtual void add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                               const ForwardContext& context) const = 0;
  /// Whether anything of the block is trainable.
  virtual bool learns() const = 0;
};

}  // namespace lorikeet::nn
