#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/token_mixer.h"
#include "ops/state_space/state_space.h"

namespace lorikeet::nn {

struct Mamba2Names {
  std::string input = "in_proj", output = "out_proj";
  std::string convolution = "conv1d", norm = "norm", a_log = "A_log", dt_bias = "dt_bias", d = "D";
};

/// A Mamba 2 layer (Dao and Gu 2024, arXiv:2405.21060), as Granite 4 H and Bamba have it.
struct Mamba2Spec {
  std::string prefix;  ///< "model.layers.0.mamba"
  std::int64_t hidden_size;
  ops::StateSpaceLayout layout;
  std::int64_t taps = 4;  ///< of the convolution
  double norm_eps;
  std::int64_t norm_groups = 1;  ///< of the norm's input, each normed by itself
  bool convolution_bias = true;
  bool bias = false;  ///< of both linear modules
  Mamba2Names names = {};

  /// The module that makes [gate | x heads | B groups | C groups | dt].
  Module input_module() const {
    return {prefix + "." + names.input, inner_width() + layout.width() + layout.heads};
  }
  Module output_module() const { return {prefix + "." + names.output, hidden_size}; }
  GroupSpec input_group() const { return {{input_module()}, hidden_size, bias}; }
  GroupSpec output_group() const { return {{output_module()}, inner_width(), bias}; }
  /// Width of x, the gate and the output module's input.
  std::int64_t inner_width() const { return layout.b_begin(); }
};

/// The block: a projection to a gate, x, B, C and the steps dt, a causal convolution with SiLU over each
/// channel of [x | B | C], the state space over each sequence, a norm of its output times the gate's SiLU,
/// and the output projection. When decoding the cache holds the convolution's last rows and the states.
class Mamba2 : public TokenMixer {
 public:
  /// Declares its tensors in `unit`. `layer` is its place in caches. The numbers of each head are held in the
  /// policy's type of statistics, fp32: exponentials magnify their rounding.
  Mamba2(const Mamba2Spec& spec, std::int64_t layer, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     TokenMixerKept* kept, ops::LeftTerms* left) const override;
  TokenMixerGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                               TokenMixerKept& kept, bool input_gradient) const override;
  void add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override;
  bool learns() const override { return in_->learns() || out_->learns(); }

 private:
  // The convolution's weight [channels, taps], and its bias, [channels] or undefined.
  at::Tensor convolution(const UnitLoan& weights, at::ScalarType dtype) const;
  at::Tensor convolution_bias() const;
  at::Tensor convolved(const at::Tensor& projected, const UnitLoan& weights,
                       const ForwardContext& context) const;
  ops::StateSpaceNumbers numbers() const;
  at::Tensor normed(const at::Tensor& out, const at::Tensor& projected) const;
  // Columns of the input module's output, or of its gradient.
  at::Tensor gate(const at::Tensor& projected) const;
  at::Tensor before_convolution(const at::Tensor& projected) const;
  at::Tensor steps(const at::Tensor& projected) const;
  // The state space's output with the cache's rows and states, which move on.
  at::Tensor cached(const at::Tensor& projected, const UnitLoan& weights,
                    const ForwardContext& context) const;

  std::int64_t layer_;
  ops::StateSpaceLayout layout_;
  std::int64_t taps_;
  double norm_eps_;
  std::int64_t norm_groups_;
  const WeightUnit* unit_;
  std::unique_ptr<LinearGroup> in_;
  std::size_t convolution_;
  std::optional<std::size_t> convolution_bias_;
  std::size_t a_log_, dt_bias_, d_, norm_;
  std::unique_ptr<LinearGroup> out_;
};

}  // namespace lorikeet::nn
