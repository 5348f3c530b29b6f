#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ops/lora/dropout.h"
#include "ops/weight_format.h"

namespace lorikeet::ops {

/// A low-rank update (Hu et al. 2021, arXiv:2106.09685) of the output columns [out_begin, out_end) of a
/// group:
///   y[:, out_begin:out_end] += scale * x a^T b^T.
struct LoraProjection {
  std::int64_t out_begin, out_end;
  at::Tensor a;  ///< [r, in], compute dtype
  at::Tensor b;  ///< [out_end - out_begin, r], compute dtype
  /// [rows, in], any floating dtype: backward adds the gradient of the first `rows` of a here, the others are
  /// frozen; or undefined.
  at::Tensor grad_a;
  at::Tensor grad_b;  ///< [out_end - out_begin, columns]: the same of the first columns of b
  double scale;
  bool* reached = nullptr;  ///< set by a backward that adds to grad_a and grad_b; or nullptr
};

/// x w^T + bias with a frozen weight, plus the low-rank updates of projections that share the input; each on
/// its own columns, not overlapping, in ascending order, gaps allowed; none: the frozen product alone.
/// x: [T, in]; weight: [out, in]; bias: [out] frozen, or undefined. Returns [T, out] in x's dtype. With
/// `dropout` the updates (not the frozen product) see the input through the group's mask. All `a` of the
/// group are multiplied as one matrix: `low_rank`, unless it is null, gets that product [T, sum of r], which
/// backward needs. Throws Error on shapes or dtypes that don't fit.
at::Tensor lora_linear(const at::Tensor& x, const FrozenMatrix& weight, const at::Tensor& bias,
                       const std::vector<LoraProjection>& projections,
                       const std::optional<LoraDropout>& dropout, at::Tensor* low_rank = nullptr);

/// Backward of the same, from dy [T, out] and forward's low_rank. Adds the projections' gradients to their
/// grad_a and grad_b and marks them as reached. `input` gives forward's x again, and is called once, with dx,
/// after the largest scratch is gone, where a projection wants the gradient of a. Returns dx [T, in], or,
/// without `input_gradient`, nothing.
at::Tensor lora_linear_backward(const at::Tensor& dy,
                                const std::function<at::Tensor(const at::Tensor& dx)>& input,
                                const at::Tensor& low_rank, const FrozenMatrix& weight,
                                const std::vector<LoraProjection>& projections,
                                const std::optional<LoraDropout>& dropout, bool input_gradient);

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
