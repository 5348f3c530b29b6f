#pragma once

#include <vector>

#include "nn/linear.h"
#include "nn/linear_stack.h"
#include "nn/norm.h"
#include "ops/experts/routing.h"

namespace lorikeet::nn {

/// What the norms of a block in which experts stand beside an MLP keep (experts_beside_mlp.h).
struct BranchNormsKept {
  NormKept input;  ///< of the three norms that read the block's input
  NormKept mlp_output, experts_output;
};

/// What a feed-forward block keeps for its backward: the activated product is computed again. `up` and what
/// its groups keep may be given up (FeedForward::up_again).
struct FeedForwardKept {
  at::Tensor up;  ///< [rows, gate | up], or [rows, up]; the activation may have been left its low-rank terms
  /// Of the groups before and behind the activation: one of each, or what LinearStack keeps of the experts'.
  std::vector<LinearKept> up_linear, down_linear;
  at::Tensor router_logits;  ///< [T, experts]; undefined without experts
  ops::Routing routing = {};
  std::vector<FeedForwardKept> shared = {};  ///< of the expert that every token passes: none or one
  at::Tensor shared_gate = {};               ///< [T, 1], its logits; undefined without such a gate
  BranchNormsKept branch_norms = {};
};

/// What a feed-forward block's backward gives.
struct FeedForwardGradients {
  at::Tensor dx = {};  ///< [T, D], or undefined where it wasn't asked for
  /// For add_a_gradients: of the group before the activation, of an MLP or of the expert that every token
  /// passes, and of the routed experts' groups.
  ops::LoraLinearGradients up = {};
  StackGradients experts = {};
  ops::Routing routing = {};

  /// Whether add_a_gradients has something to do.
  bool want_input() const { return up.want_input() || experts.want_input(); }
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
  /// x's gradient, where `input_gradient` asks for it; adds the gradients of what is trainable in the block
  /// but for those that need x: where the result says so, add_a_gradients has to follow. Gives back what was
  /// kept on the way.
  virtual FeedForwardGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                        const ForwardContext& context, FeedForwardKept& kept,
                                        bool input_gradient) const = 0;
  /// The rest of a backward, with forward's x.
  virtual void add_a_gradients(const FeedForwardGradients& gradients, const at::Tensor& x,
                               const ForwardContext& context) const = 0;
  /// Whether anything of the block is trainable.
  virtual bool learns() const = 0;
};

}  // namespace lorikeet::nn
