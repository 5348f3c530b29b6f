#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "ops/activation/activation.h"

namespace lorikeet::nn {

struct MlpNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

struct MlpSpec {
  std::string prefix;  ///< "model.layers.0.mlp"
  std::int64_t hidden_size;
  std::int64_t intermediate_size;
  ops::Activation activation = ops::Activation::kSilu;
  bool bias = false;
  MlpNames names;
  std::optional<FusedModule> fused_gate_up;  ///< absent: gate and up are modules of their own
  bool gated = true;                         ///< else there is no gate: down(act(up x))

  /// The modules that make [gate | up], or up alone.
  std::vector<Module> gate_up_modules() const;
  Module down_module() const;
};

/// What an MLP keeps for its backward: the activated product is computed again. `up` and `up_linear` may be
/// given up (Mlp::up_again).
struct MlpKept {
  at::Tensor up;  ///< [T, gate | up], or [T, up]; the activation may have been left its low-rank terms
  LinearKept up_linear, down_linear;
};

/// Feed-forward block: down(act(gate x) * up x), or down(act(up x)).
class Mlp {
 public:
  Mlp(const MlpSpec& spec, LinearFactory& factory, WeightUnit& unit);

  /// x [T, D] -> [T, D]. `kept`, unless it is null, gets what backward needs beside x. `left`, unless it is
  /// null, may be left low-rank terms of the result.
  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     MlpKept* kept, ops::LeftTerms* left = nullptr) const;
  /// Computes `kept.up` again, where it was given up, from forward's x.
  void up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                MlpKept& kept) const;
  /// As LinearGroup::backward, for the whole block; gives back what was kept on the way.
  ops::LoraLinearGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                    const ForwardContext& context, MlpKept& kept, bool input_gradient) const;
  /// The rest of a backward, with forward's x.
  void add_a_gradients(const ops::LoraLinearGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const {
    up_->add_a_gradients(gradients, x, context);
  }
  bool learns() const { return up_->learns() || down_->learns(); }

 private:
  at::Tensor activated(const at::Tensor& up, const std::vector<ops::LowRankTerm>& terms) const;

  bool gated_;
  ops::Activation activation_;
  std::unique_ptr<LinearGroup> up_;
  std::unique_ptr<LinearGroup> down_;
};

}  // namespace lorikeet::nn
