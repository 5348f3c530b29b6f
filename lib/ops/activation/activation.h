#pragma once

#include <ATen/core/Tensor.h>

#include "ops/activation/kind.h"

namespace lorikeet::ops {

/// A feed-forward block's function between its projections. All compute in fp32 (fp64 for fp64 input), round
/// once and throw Error on shapes that don't fit.
///
/// Gated (Shazeer 2020, arXiv:2002.05202): act(gate) * up. gate_up: [T, 2I] with rows [gate | up], floating,
/// contiguous. Returns [T, I] in the same dtype.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation);

/// The gradient of gate_up, written over it. dy: [T, I]. `again`, unless it is null, gets forward's result
/// once more, in the same pass over memory.
void gated_activation_backward_(const at::Tensor& dy, at::Tensor& gate_up, Activation activation,
                                at::Tensor* again = nullptr);

/// Plain: act(x). x: [T, I], floating, contiguous.
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
