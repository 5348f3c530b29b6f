#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
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
  bool* reached = nullptr;  ///< set by a backward that has added to grad_a and grad_b; or nullptr
};

/// Leaves low-rank terms to whoever reads a product next and adds them on the way: they are not written, and
/// not read again by the large product.
struct LeftTerms {
  /// Whether the reader adds `terms` to `product`, whose elements aren't computed yet.
  using Takes = std::function<bool(const at::Tensor& product, const std::vector<LowRankTerm>& terms)>;
  explicit LeftTerms(Takes reader_takes) : takes(std::move(reader_takes)) {}

  Takes takes;
  std::vector<LowRankTerm> terms = {};  ///< those that it was left; empty: the product is complete
  /// Of a backward's term, left a: grad_a of all projections as one matrix [sum of r, in]; undefined where
  /// they don't lie so, or nobody wants them. A reader that computes x may add the term's scale times its
  /// left^T x, and call a_gradients_added instead of add_a_gradients.
  at::Tensor right_gradient = {};
};

/// x w^T + bias with a frozen weight, plus the low-rank updates of projections that share the input; each on
/// its own columns, not overlapping, in ascending order, gaps allowed; none: the frozen product alone.
/// x: [T, in]; weight: [out, in]; bias: [out] frozen, or undefined. Returns [T, out] in x's dtype. With
/// `dropout` the updates (not the frozen product) see the input through the group's mask. All `a` of the
/// group are multiplied as one matrix: `low_rank`, unless it is null, gets that product [T, sum of r], which
/// backward needs. `left`, unless it is null: see LeftTerms. `into`, unless it is undefined, is the dense
/// [T, out] that gets the result. Throws Error on shapes or dtypes that don't fit.
at::Tensor lora_linear(const at::Tensor& x, const FrozenMatrix& weight, const at::Tensor& bias,
                       const std::vector<LoraProjection>& projections,
                       const std::optional<LoraDropout>& dropout, at::Tensor* low_rank = nullptr,
                       LeftTerms* left = nullptr, const at::Tensor& into = {});

/// The terms of lora_linear's product, whether it added them or left them. low_rank: what it gave.
std::vector<LowRankTerm> low_rank_terms(const at::Tensor& low_rank,
                                        const std::vector<LoraProjection>& projections);

/// What lora_linear_backward gives.
struct LoraLinearGradients {
  at::Tensor dx;  ///< [T, in], or undefined where it wasn't asked for
  /// The gradient of x a^T [T, sum of r], before the projections' common scale; undefined where nobody wants
  /// that of a.
  at::Tensor low_rank;
  std::vector<LoraProjection> projections = {};  ///< for add_a_gradients; empty where it has nothing to do

  /// Whether add_a_gradients has something to do.
  bool want_input() const { return low_rank.defined(); }
};

/// Backward of the same, from dy [T, out] and forward's low_rank: the gradient of x, where
/// `input_gradient` asks for it, and those of b, which are added to the projections' grad_b. Those of a need
/// x, which may not have been kept: where `want_input` says so, add_a_gradients has to follow, unless a
/// reader of the term adds them (LeftTerms::right_gradient). `left` and `into`: as in forward, of dx.
LoraLinearGradients lora_linear_backward(const at::Tensor& dy, const at::Tensor& low_rank,
                                         const FrozenMatrix& weight, std::vector<LoraProjection> projections,
                                         const std::optional<LoraDropout>& dropout, bool input_gradient,
                                         LeftTerms* left = nullptr, const at::Tensor& into = {});

/// The rest of a backward, with forward's x: adds the gradients of a to the projections' grad_a.
void add_a_gradients(const LoraLinearGradients& gradients, const at::Tensor& x,
                     const std::optional<LoraDropout>& dropout);

/// Says that they were added otherwise: see LeftTerms::right_gradient.
void a_gradients_added(const LoraLinearGradients& gradients);

/// Both at once, where forward's x is at hand. Returns its gradient, as asked for.
at::Tensor lora_linear_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& low_rank,
                                const FrozenMatrix& weight, const std::vector<LoraProjection>& projections,
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
