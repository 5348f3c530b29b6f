#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/lora/lora_linear.h"

// DoRA (Liu et al. 2024, arXiv:2402.09353): each row of W + scale * B A is brought to a trained length,
//   y = magnitude / |W + scale * B A| * (x (W + scale * B A)^T) + bias,
// whose norm is taken as a constant by backward (section 4.3 of the paper, and PEFT).
namespace lorikeet::ops {

/// The Euclidean norms of the rows of W + scale * B A, for each projection in turn, fp32 [sum of their
/// columns] (fp64 for fp64 a). `weight`: [out, in]; rows [out_begin, out_end) are a projection's. Neither B A
/// nor a copy of W is made: |w + s b A|^2 = |w|^2 + 2 s (A w) b + s^2 b (A A^T) b. A row of zeros has the
/// smallest normal number instead, so that its quotient is 0. `known_squares`: row_squares, where it is at
/// hand, since it stays the same while A and B learn; undefined: it is computed.
at::Tensor dora_norms(const FrozenMatrix& weight, const std::vector<LoraProjection>& projections,
                      const at::Tensor& known_squares = {});

/// |w|^2 of a weight's rows, [out], of the dtype of norms with an adapter's factor `a`: fp32 (fp64 for fp64
/// a).
at::Tensor row_squares(const FrozenMatrix& weight, const at::Tensor& a);

/// dora_norms for the columns of a table W [V, D], as DoRA of an embedding has them: fp32 [D] (fp64 for fp64
/// a). update: b [V, r] and a [r, D], as lora_embedding takes it. The square of a column's norm is that of
/// W's column + 2 s (b^T W) a + s^2 a^T (b^T b) a, formed by runs of rows.
at::Tensor dora_column_norms(const FrozenMatrix& table, const LoraProjection& update);

/// The trained lengths of a weight's rows (of a table's columns, for an embedding) and what these are
/// without.
struct DoraMagnitude {
  at::Tensor magnitude;  ///< [n], any floating dtype
  at::Tensor norms;      ///< fp32 [n] (fp64 for fp64 operands): dora_norms or dora_column_norms
  at::Tensor gradient;   ///< [n]: where backward adds the magnitude's gradient; or undefined

  /// What the columns of the product are multiplied by, the norms' dtype.
  at::Tensor factors() const;
  /// Adds the magnitude's gradient, from that of factors(): the norms are constants.
  void add_gradient(const at::Tensor& factors_gradient) const;
};

/// y = x * factors + bias, by columns. x: [T, out]; factors: fp32 [out] (fp64 for fp64 x); bias: [out] of x's
/// dtype, or undefined. Returns x's dtype, rounded once.
at::Tensor scale_columns(const at::Tensor& x, const at::Tensor& factors, const at::Tensor& bias);

/// What flows back through scale_columns.
struct ScaleColumnsBackward {
  at::Tensor dx;       ///< [T, out], dy's dtype
  at::Tensor factors;  ///< the gradient of the factors, their dtype [out]: sums over tokens of dy * x
};
/// dy and x: [T, out] of one dtype; factors as in forward.
ScaleColumnsBackward scale_columns_backward(const at::Tensor& dy, const at::Tensor& x,
                                            const at::Tensor& factors);

namespace reference {

/// scale_columns by plain ATen calls, differentiable in x and factors, on any device.
at::Tensor scale_columns(const at::Tensor& x, const at::Tensor& factors, const at::Tensor& bias);

}  // namespace reference
}  // namespace lorikeet::ops
