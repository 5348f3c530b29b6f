#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/feed_forward.h"
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
  bool by_name_only = false;                 ///< GroupSpec's

  /// The modules that make [gate | up], or up alone.
  std::vector<Module> gate_up_modules() const;
  Module down_module() const;
};

/// Feed-forward block: down(act(gate x) * up x), or down(act(up x)).
class Mlp : public FeedForward {
 public:
  Mlp(const MlpSpec& spec, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     FeedForwardKept* kept, ops::LeftTerms* left) const override;
  void up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                FeedForwardKept& kept) const override;
  FeedForwardGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                FeedForwardKept& kept, bool input_gradient) const override;
  /// The same of an MLP without biases; `row_products` gets the inner product of each row of dy and forward's
  /// result, fp32 (fp64 for fp64) [T].
  FeedForwardGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                FeedForwardKept& kept, bool input_gradient, at::Tensor* row_products) const;
  void add_a_gradients(const FeedForwardGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override {
    up_->add_a_gradients(gradients.up, x, context);
  }
  bool learns() const override { return up_->learns() || down_->learns(); }

 private:
  at::Tensor activated(const at::Tensor& up, const std::vector<ops::LowRankTerm>& terms) const;

  bool gated_;
  ops::Activation activation_;
  std::unique_ptr<LinearGroup> up_;
  std::unique_ptr<LinearGroup> down_;
};

}  // namespace lorikeet::nn
