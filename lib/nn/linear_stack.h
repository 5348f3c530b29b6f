#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/linear.h"
#include "ops/experts/grouped_lora.h"
#include "ops/experts/routing.h"

namespace lorikeet::nn {

/// What a stack's backward leaves for add_a_gradients.
struct StackGradients {
  std::vector<ops::LoraLinearGradients> of_experts;  ///< where each was computed by itself
  at::Tensor low_rank = {};                          ///< else grouped_lora_backward's; may be undefined

  /// Whether add_a_gradients has something to do.
  bool want_input() const;
};

/// A linear group of each expert, all of one shape. Each computes its own rows: one after the other, or,
/// where that uses the device better, by one launch a product for all (ops/experts/grouped_lora.h), which has
/// no form of DoRA and dropout.
class LinearStack {
 public:
  LinearStack() = default;  ///< to be assigned to
  /// At least one group.
  explicit LinearStack(std::vector<std::unique_ptr<LinearGroup>> experts);

  /// x [rows of all experts, in] -> out [rows, sum of out], dense. `kept`, unless it is null, gets what
  /// backward needs: of each expert, or one for the rows of all, which is never so where there is one expert.
  void forward(at::Tensor& out, const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
               const ops::Routing& routing, std::vector<LinearKept>* kept) const;
  /// The gradient of x into the dense dx [rows, in], unless that is undefined; adds those of what is
  /// trainable but for those that need x: where the result says so, add_a_gradients has to follow. Gives back
  /// what was kept on the way.
  StackGradients backward(at::Tensor& dx, const at::Tensor& dy, const UnitLoan& weights,
                          const ForwardContext& context, const ops::Routing& routing,
                          std::vector<LinearKept>& kept) const;
  /// The rest of a backward, with forward's x.
  void add_a_gradients(const StackGradients& gradients, const at::Tensor& x, const ForwardContext& context,
                       const ops::Routing& routing) const;

  /// The experts' biases [experts, sum of out]; undefined where they have none.
  at::Tensor biases() const;
  bool learns() const { return learns_; }

 private:
  // The rows of one expert, and what a pass knows of them.
  struct Rows {
    std::size_t expert;
    std::int64_t begin, end;
    const ForwardContext& context;

    at::Tensor of(const at::Tensor& all) const;
  };
  // Calls f(Rows) for each expert: those without rows too where experts learn, whose gradients are zeros
  // then.
  template <typename F>
  void for_each(const ops::Routing& routing, const ForwardContext& context, F&& f) const;
  // The experts' matrices, where they lie at equal distances, without biases.
  std::optional<ops::MatrixStack> matrices(const UnitLoan& weights) const;
  // The experts' updates, where they can be computed at once; null otherwise, and where nothing learns.
  const ops::StackedUpdates* updates(const ForwardContext& context) const;

  std::vector<std::unique_ptr<LinearGroup>> experts_;
  bool learns_ = false;
  std::optional<std::int64_t> apart_;  // bytes from a matrix to the next, where that is one number
  // The experts' updates: their tensors stay where an adapter store has allocated them. `of` is the first of
  // them, by which another allocation is known.
  struct Updates {
    at::Tensor of;
    std::optional<ops::StackedUpdates> stacked;
  };
  mutable Updates updates_;
};

}  // namespace lorikeet::nn
