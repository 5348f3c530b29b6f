#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ops/frozen_weight.h"
#include "ops/lora/dropout.h"

namespace lorikeet::ops {

/// A low-rank update (Hu et al. 2021, arXiv:2106.09685) of the output columns [out_begin, out_end) of a
/// group:
///   y[:, out_begin:out_end] += scale * x a^T b^T.
struct LoraProjection {
  std::int64_t out_begin, out_end;
  at::Tensor a;       ///< [r, in], compute dtype
  at::Tensor b;       ///< [out_end - out_begin, r], compute dtype
  at::Tensor grad_a;  ///< [r, in], any floating dtype: backward adds the gradient of a here; or undefined
  at::Tensor grad_b;  ///< [out_end - out_begin, r]: the same of b
  double scale;
  bool* reached = nullptr;  ///< set by a backward that adds to grad_a and grad_b; or nullptr
};

/// x w^T + bias with a frozen weight, which backward borrows again instead of keeping it.
/// x: [T, in]; weight: [out, in] of x's dtype; bias: [out] frozen, or undefined. Returns [T, out] in x's
/// dtype. Differentiable in x. Throws Error on shapes or dtypes that don't fit.
at::Tensor frozen_linear(const at::Tensor& x, const std::shared_ptr<const FrozenWeight>& weight,
                         const at::Tensor& bias);

/// The same plus the low-rank updates of a group of projections that share the input; each on its own
/// columns, not overlapping, in ascending order, gaps allowed. With `dropout` the updates (not the frozen
/// product) see the input through the group's mask. All `a` of the group are multiplied as one matrix.
/// anchor: any leaf that requires grad, so that there is a graph below the first adapter, where x needs none;
/// it gets no gradient itself. May be undefined: then x alone decides. Backward adds the adapters' gradients
/// to their grad_a and grad_b, and computes x's only if x needs it. Throws Error on shapes or dtypes that
/// don't fit.
at::Tensor lora_linear(const at::Tensor& x, const std::shared_ptr<const FrozenWeight>& weight,
                       const at::Tensor& bias, const std::vector<LoraProjection>& projections,
                       const std::optional<LoraDropout>& dropout, const at::Tensor& anchor);

/// Throws Error unless the projections fit an input of `in` features and an output of `out` features.
void check_projections(const char* op, const std::vector<LoraProjection>& projections, std::int64_t in,
                       std::int64_t out, at::ScalarType dtype);

namespace reference {

/// The same by plain ATen calls, differentiable in x and in those a and b that require grad (grad_a and
/// grad_b are not touched), on any device and in fp64.
at::Tensor lora_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const std::vector<LoraProjection>& projections,
                       const std::optional<LoraDropout>& dropout);

}  // namespace reference
}  // namespace lorikeet::ops
