#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/token_mixer.h"
#include "ops/gated_delta/gated_delta.h"

namespace lorikeet::nn {

struct GatedDeltaNetNames {
  std::string qkv = "in_proj_qkv", z = "in_proj_z", b = "in_proj_b", a = "in_proj_a", output = "out_proj";
  std::string convolution = "conv1d", norm = "norm", a_log = "A_log", dt_bias = "dt_bias";
};

/// The modules of a checkpoint that holds q, k, v and z in one and b and a in one (Qwen3-Next). Of each key
/// head their rows are [q | k | its v heads | their z], and [b | a] of its v heads.
struct FusedDeltaNet {
  std::string qkvz = "in_proj_qkvz", ba = "in_proj_ba";
};

/// A gated delta net (arXiv:2412.06464), as Qwen 3.5 has it.
struct GatedDeltaNetSpec {
  std::string prefix;  ///< "model.layers.0.linear_attn"
  std::int64_t hidden_size;
  ops::DeltaLayout layout;
  std::int64_t taps = 4;  ///< of the convolution
  double norm_eps;
  GatedDeltaNetNames names;
  std::optional<FusedDeltaNet> fused = {};  ///< absent: qkv, z, b and a are modules of their own

  /// The modules that make [q heads | k heads | v heads | z], and [b | a].
  std::vector<Module> input_modules() const;
  std::vector<Module> gate_modules() const;
  Module output_module() const;
  /// Width of v, z and the output module's input.
  std::int64_t value_width() const { return layout.value_heads * layout.value_dim; }
};

/// The block: projections to queries, keys and values, a causal convolution over each of their channels, the
/// gated delta rule over each sequence, a norm of each head gated by z, and the output projection. When
/// decoding the cache holds the convolution's last rows and the rule's states. b and a are a group of their
/// own: checkpoints in 8 bits leave them as numbers.
class GatedDeltaNet : public TokenMixer {
 public:
  /// Declares its tensors in `unit`. `layer` is its place in caches. a_log and dt_bias are held in the
  /// policy's type of statistics, fp32: exponentials magnify their rounding.
  GatedDeltaNet(const GatedDeltaNetSpec& spec, std::int64_t layer, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     TokenMixerKept* kept, ops::LeftTerms* left) const override;
  TokenMixerGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                               TokenMixerKept& kept, bool input_gradient) const override;
  void add_a_gradients(const TokenMixerGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override;
  bool learns() const override { return in_->learns() || gates_->learns() || out_->learns(); }

 private:
  // The convolution's weight [channels, taps].
  at::Tensor convolution(const UnitLoan& weights, at::ScalarType dtype) const;
  at::Tensor convolved(const at::Tensor& projected, const UnitLoan& weights,
                       const ForwardContext& context) const;
  ops::DeltaDecay decay() const;
  at::Tensor norm_weight() const { return unit_->tensor(norm_); }
  at::Tensor before_convolution(const at::Tensor& projected) const;
  at::Tensor z(const at::Tensor& projected) const;
  // The rule's output with the cache's rows and states, which move on.
  at::Tensor cached(const at::Tensor& projected, const at::Tensor& gates, const UnitLoan& weights,
                    const ForwardContext& context) const;

  std::int64_t layer_;
  ops::DeltaLayout layout_;
  std::int64_t taps_;
  double norm_eps_;
  const WeightUnit* unit_;
  std::unique_ptr<LinearGroup> in_, gates_;
  std::size_t convolution_;
  std::size_t a_log_, dt_bias_, norm_;
  std::unique_ptr<LinearGroup> out_;
};

}  // namespace lorikeet::nn
