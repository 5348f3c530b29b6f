#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/token_mixer.h"

namespace lorikeet::nn {

struct ShortConvNames {
  std::string input = "in_proj", convolution = "conv", output = "out_proj";
};

/// A gated short convolution, as LFM2 has it in place of attention in most layers.
struct ShortConvSpec {
  std::string prefix;  ///< "model.layers.0.conv"
  std::int64_t hidden_size;
  std::int64_t taps = 3;
  ShortConvNames names = {};

  /// The module that makes [b | c | x], each as wide as the stream.
  Module input_module() const { return {prefix + "." + names.input, 3 * hidden_size}; }
  Module output_module() const { return {prefix + "." + names.output, hidden_size}; }
};

/// The block: a projection to [b | c | x], c times the convolution of b times x (ops::gated_conv), and the
/// output projection. When decoding the cache holds b times x of the last rows.
class ShortConv : public TokenMixer {
 public:
  /// Declares its tensors in `unit`. `layer` is its place in caches.
  ShortConv(const ShortConvSpec& spec, std::int64_t layer, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     TokenMixerKept* kept, ops::LeftTerms* left) const override;
  TokenMixerGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                               TokenMixerKept& kept, bool input_gradient) const override;
  void add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override;
  bool learns() const override { return in_->learns() || out_->learns(); }

 private:
  // The convolution's weight [channels, taps].
  at::Tensor convolution(const UnitLoan& weights, at::ScalarType dtype) const;
  // gated_conv with the cache's rows, which move on.
  at::Tensor cached(const at::Tensor& projected, const UnitLoan& weights,
                    const ForwardContext& context) const;

  std::int64_t layer_, hidden_size_, taps_;
  std::unique_ptr<LinearGroup> in_;
  std::size_t convolution_;
  std::unique_ptr<LinearGroup> out_;
};

}  // namespace lorikeet::nn
