#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/feed_forward.h"
#include "ops/activation/activation.h"

namespace lorikeet::nn {

struct ExpertNames {
  std::string router = "gate", experts = "experts", gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// A mixture of experts: gated MLPs, of which each token passes a few. Their weights lie after each other.
struct ExpertsSpec {
  std::string prefix;  ///< "model.layers.0.mlp"
  std::int64_t hidden_size;
  std::int64_t intermediate_size;  ///< of one expert
  std::int64_t count;
  ops::RouterOptions router;
  ops::Activation activation = ops::Activation::kSilu;
  ExpertNames names;

  /// The module whose output are the experts' logits.
  Module router_module() const;
  /// The modules that make [gate | up], expert after expert.
  std::vector<Module> gate_up_modules() const;
  std::vector<Module> down_modules() const;
  /// Parameters of linear modules: all of them, and those of `experts` experts.
  std::int64_t parameters() const;
  std::int64_t parameters_of(std::int64_t experts) const;
};

/// The block: with its router's weights w_e, sum over a token's experts e of w_e down_e(act(gate_e x) * up_e
/// x). All of it is frozen: PEFT's `all-linear` leaves router and experts out too, which transformers holds
/// as plain parameters. The router's logits are computed in the compute dtype, its softmax in fp32. Nothing
/// is added to the loss to balance experts (transformers' default, output_router_logits: false).
class Experts : public FeedForward {
 public:
  /// Throws Error where a token's experts are more than there are.
  Experts(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     FeedForwardKept* kept, ops::LeftTerms* left) const override;
  void up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                FeedForwardKept& kept) const override;
  ops::LoraLinearGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                    const ForwardContext& context, FeedForwardKept& kept,
                                    bool input_gradient) const override;
  void add_a_gradients(const ops::LoraLinearGradients& /*gradients*/, const at::Tensor& /*x*/,
                       const ForwardContext& /*context*/) const override {}
  bool learns() const override { return false; }

 private:
  // Experts' matrices of one kind, all of the same shape, after each other.
  struct Matrices {
    MatrixPlace all;
    std::size_t segments;  // of one expert
    std::int64_t rows;     // of one expert

    ops::FrozenMatrix of(const UnitLoan& weights, std::size_t expert) const;
  };

  // [rows, gate | up] of the experts' rows.
  at::Tensor up(const at::Tensor& x, const UnitLoan& weights, const ops::Routing& routing) const;

  ops::RouterOptions options_;
  ops::Activation activation_;
  MatrixPlace router_;
  Matrices up_, down_;
};

}  // namespace lorikeet::nn
