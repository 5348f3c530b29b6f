#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/activation/kind.h"
#include "ops/matmul/matmul.h"

namespace lorikeet::ops {

/// A feed-forward block's function between its projections. All compute in fp32 (fp64 for fp64 input), round
/// once and throw Error on shapes that don't fit.
///
/// Gated (Shazeer 2020, arXiv:2002.05202): act(gate) * up, or for Activation::kClampedSwiglu what kind.h
/// says. gate_up: [T, 2I] with rows [gate | up], floating, contiguous. Returns [T, I] in the same dtype.
/// `terms`, those that gated_activation_adds takes, are added to gate_up as it is read, in fp32; gate_up
/// stays as it is.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation,
                            const std::vector<LowRankTerm>& terms = {});

/// The gradient of gate_up (and its terms), written over it. dy: [T, I], to which `dy_terms` are added alike,
/// those that gated_activation_backward_adds takes. `again`, unless it is null, gets forward's result y once
/// more, in the same pass over memory. `right_gradient`, which may be defined only without `again` and where
/// gated_activation_backward_sums takes it, [r, I]: += scale left^T y, those of dy's term; where the next
/// projection has LoRA that is the gradient of its A.
void gated_activation_backward_(const at::Tensor& dy, at::Tensor& gate_up, Activation activation,
                                at::Tensor* again = nullptr, const std::vector<LowRankTerm>& terms = {},
                                const std::vector<LowRankTerm>& dy_terms = {},
                                const at::Tensor& right_gradient = {});

/// For LeftTerms::takes: whether low-rank terms of gate_up, or of dy, are added on the way. They are in 16
/// bits on a GPU with tensor cores, where their ranks are 8 or 16 and each covers gate, up or both, or all of
/// dy; on a CPU the products themselves add terms without a pass of their own.
bool gated_activation_adds(const at::Tensor& gate_up, const std::vector<LowRankTerm>& terms);
bool gated_activation_backward_adds(const at::Tensor& dy, const std::vector<LowRankTerm>& terms);

/// Whether the gradient of the right operand of dy's term is summed on the way: where the term is added and
/// `right_gradient`, [r, I], is dense, in fp32 and begins at a multiple of 16 bytes.
bool gated_activation_backward_sums(const at::Tensor& dy, const std::vector<LowRankTerm>& dy_terms,
                                    const at::Tensor& right_gradient);

/// Plain: act(x). x: [T, I], floating, contiguous. Throws Error for Activation::kClampedSwiglu, which is a
/// function of two numbers.
at::Tensor activation(const at::Tensor& x, Activation activation);

/// The gradient of x, written over it; `again` as above.
void activation_backward_(const at::Tensor& dy, at::Tensor& x, Activation activation,
                          at::Tensor* again = nullptr);

namespace reference {

/// The same by plain ATen calls, differentiable, on any device and in fp64.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation);
at::Tensor activation(const at::Tensor& x, Activation activation);

}  // namespace reference
}  // namespace lorikeet::ops
