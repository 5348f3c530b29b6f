#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// The gate's function: x sigmoid(x); GELU by tanh; GELU by erf.
enum class Activation { kSilu, kGeluTanh, kGelu };

/// The gated unit of a feed-forward block (Shazeer 2020, arXiv:2002.05202): act(gate) * up.
/// gate_up: [T, 2I] with rows [gate | up], floating, contiguous. Returns [T, I] in the same dtype.
/// Computed in fp32 (fp64 for fp64 input) and rounded once. Backward keeps gate_up alone.
/// Throws Error on shapes that don't fit.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation);

namespace reference {

/// The same by plain ATen calls, differentiable, on any device and in fp64.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation);

}  // namespace reference
}  // namespace lorikeet::ops
