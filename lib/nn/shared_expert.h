#pragma once

#include <optional>

#include "nn/experts.h"
#include "nn/feed_forward.h"
#include "nn/mlp.h"

namespace lorikeet::nn {

/// A mixture of experts with a shared one, an MLP that every token passes: routed(x) + sigmoid(gate x)
/// mlp(x), or, without a gate, routed(x) + mlp(x). The gate is frozen, as the router is.
class SharedExpert : public FeedForward {
 public:
  /// Of a spec with a shared expert. Throws Error as Experts does.
  SharedExpert(const ExpertsSpec& spec, LinearFactory& factory, WeightUnit& unit);

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                     FeedForwardKept* kept, ops::LeftTerms* left) const override;
  void up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                FeedForwardKept& kept) const override;
  FeedForwardGradients backward(const at::Tensor& dy, const UnitLoan& weights, const ForwardContext& context,
                                FeedForwardKept& kept, bool input_gradient) const override;
  void add_a_gradients(const FeedForwardGradients& gradients, const at::Tensor& x,
                       const ForwardContext& context) const override;
  bool learns() const override { return experts_.learns() || mlp_.learns(); }

 private:
  Experts experts_;
  Mlp mlp_;
  std::optional<MatrixPlace> gate_;
};

}  // namespace lorikeet::nn
