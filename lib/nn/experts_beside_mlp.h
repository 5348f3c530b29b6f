#pragma once

#include "nn/experts.h"
#include "nn/feed_forward.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace lorikeet::nn {

/// Experts beside an MLP that every token passes, each between norms of its own (Gemma 4): of the stream's
/// value x, with the norms of BranchNorms,
///   mlp_output(mlp(mlp_input(x))) + experts_output(experts(experts_input(x)))
/// The experts' router reads x / rms(x) * router_scale / sqrt(D). All norms are frozen, as the router is.
class ExpertsBesideMlp : public FeedForward {
 public:
  /// Throws Error as Experts does, and where the spec has no shared expert or one with a gate.
  ExpertsBesideMlp(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     FeedForwardKept* kept, ops::LeftTerms* left) const override;
  void up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                FeedForwardKept& kept) const override;
  /// Adds the gradients of all that is trainable: nothing is left to add_a_gradients, since the norms have x.
  FeedForwardGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                FeedForwardKept& kept, bool input_gradient) const override;
  void add_a_gradients(const FeedForwardGradients& /*gradients*/, const at::Tensor& /*x*/,
                       const ForwardContext& /*context*/) const override {}
  bool learns() const override { return mlp_.learns() || experts_.learns(); }

 private:
  // What the router's norm multiplies by.
  ops::NormParameters router_parameters() const;

  const WeightUnit* unit_;
  double root_size_;
  Norm mlp_input_;
  Mlp mlp_;
  Norm mlp_output_;
  std::size_t router_scale_;
  Norm experts_input_;
  Experts experts_;
  Norm experts_output_;
};

}  // namespace lorikeet::nn
