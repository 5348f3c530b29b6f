#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/experts/grouped_products.h"
#include "ops/lora/lora_linear.h"

// lora_linear.h for the groups of all experts in one launch a product.
namespace lorikeet::ops {

/// The low-rank updates of all experts' groups: of each the same columns, ranks and scale.
struct StackedUpdates {
  struct Part {
    std::int64_t begin;    ///< the first of its columns
    MatrixList b, grad_b;  ///< of experts, [columns, r]; grad_b, fp32, may be undefined
  };
  std::vector<Part> parts;  ///< one or two
  MatrixList a, grad_a;     ///< of experts, [sum of r, in]; grad_a, fp32, may be undefined
  double scale;
  std::vector<bool*> reached;  ///< LoraProjection's, of all
};

/// The updates of experts, each as lora_linear takes them, as one: nothing where they don't lie so in memory,
/// differ, aren't aligned, are more than two, or where a part of their ranks is frozen.
std::optional<StackedUpdates> stack_updates(const std::vector<std::vector<LoraProjection>>& experts);

/// out = x W_e^T + bias_e + scale x A_e^T B_e^T for the rows of each expert e, as grouped_forward. Returns
/// x A^T [rows, sum of r], which backward needs.
at::Tensor grouped_lora_forward(at::Tensor& out, const at::Tensor& x, const Routing& routing,
                                const MatrixStack& matrices, const StackedUpdates& updates);

/// x's gradient into dx, unless that is undefined; adds those of every B. Returns the gradient of x A^T
/// before the scale [rows, sum of r], for grouped_a_gradients.
at::Tensor grouped_lora_backward(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& low_rank,
                                 const Routing& routing, const MatrixStack& matrices,
                                 const StackedUpdates& updates);

/// Adds the gradients of every A, from forward's x.
void grouped_a_gradients(const at::Tensor& gradient, const at::Tensor& x, const Routing& routing,
                         const StackedUpdates& updates);

}  // namespace lorikeet::ops
