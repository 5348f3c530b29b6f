#pragma once

#include "nn/linear.h"
#include "ops/experts/routing.h"

namespace lorikeet::nn {

/// What a feed-forward block keeps for its backward: the activated product is computed again. `up` and
/// `up_linear` may be given up (FeedForward::up_again).
struct FeedForwardKept {
  at::Tensor up;  ///< [rows, gate | up], or [rows, up]; the activation may have been left its low-rank terms
  LinearKept up_linear, down_linear;
  at::Tensor router_logits;  ///< [T, experts]; undefined without experts
  ops::Routing routing = {};
};

/// A layer's block behind its attention: an MLP, or a mixture of experts.
class FeedForward {
 public:
  virtual ~FeedForward() = default;

  /// x [T, D] -> [T, D]. `kept`, unless it is null, gets what backward needs beside x. `left`, unless it is
  /// null, may be left low-rank terms of the result.
  virtual at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                             FeedForwardKept* kept, ops::LeftTerms* left = nullptr) const = 0;
  /// Computes `kept.up` again, where it was given up, from forward's x.
  virtual void up_again(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
                        FeedForwardKept& kept) const = 0;
  /// As LinearGroup::backward, for the whole block; gives back what was kept on the way.
  virtual ops::LoraLinearGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                            const ForwardContext& context, FeedForwardKept& kept,
                                            bool input_gradient) const = 0;
  /// The rest of a backward, with forward's x.
  virtual void add_a_gradients(const ops::LoraLinearGradients& gradients, const at::Tensor& x,
                               const ForwardContext& context) const = 0;
  /// Whether anything of the block is trainable.
  virtual bool learns() const = 0;
};

}  // namespace lorikeet::nn
