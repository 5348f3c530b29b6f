#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/linear.h"
#include "ops/experts/grouped_products.h"
#include "ops/experts/routing.h"

namespace lorikeet::nn {

/// A linear group of each expert, all of one shape. Each computes its own rows: one after the other, or, frozen
/// ones where that uses the device better, by one launch for all (ops/experts/grouped_products.h).
class LinearStack {
 public:
  LinearStack() = default;  ///< to be assigned to
  /// At least one group.
  explicit LinearStack(std::vector<std::unique_ptr<LinearGroup>> experts);

  /// x [rows of all experts, in] -> out [rows, sum of out], dense. `kept`, unless it is null, gets what
  /// backward needs of each expert.
  void forward(at::Tensor& out, const at::Tensor& x, const UnitLoan& weights, const ForwardContext& context,
               const ops::Routing& routing, std::vector<LinearKept>* kept) const;
  /// The gradient of x into the dense dx [rows, in], unless that is undefined; adds those of what is trainable
  /// but for those that need x, which add_a_gradients adds from what is returned, of each expert. Gives back
  /// what was kept on the way.
  std::vector<ops::LoraLinearGradients> backward(at::Tensor& dx, const at::Tensor& dy, const UnitLoan& weights,
                                                 const ForwardContext& context, const ops::Routing& routing,
                                                 std::vector<LinearKept>& kept) const;
  /// The rest of a backward, with forward's x.
  void add_a_gradients(const std::vector<ops::LoraLinearGradients>& gradients, const at::Tensor& x,
                       const ForwardContext& context, const ops::Routing& routing) const;

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
  // The experts' matrices, where one launch is to multiply them all.
  std::optional<ops::MatrixStack> at_once(const at::Tensor& rows, const ops::Routing& routing,
                                          const UnitLoan& weights) const;

  std::vector<std::unique_ptr<LinearGroup>> experts_;
  bool learns_ = false;
  std::optional<std::int64_t> apart_;  // bytes from a matrix to the next, where all are frozen and equally far
};

}  // namespace lorikeet::nn
