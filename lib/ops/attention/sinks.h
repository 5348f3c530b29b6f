#pragma once

#include <ATen/core/Tensor.h>

namespace lorikeet::ops {

/// Attention sinks (Xiao et al. 2023, arXiv:2309.17453; learned, one number a query head, as in gpt-oss). A
/// sink is one more key of each query, with a score of its own and no value:
///   p_ij = exp(s_ij) / (sum_j exp(s_ij) + exp(sink_h)).
/// From what attention gave without them, in place:
///   out *= sigmoid(lse - sink_h),   lse = log(exp(lse) + exp(sink_h)).
/// An attention's backward that computes P = exp(S - lse) and the sum of dout * out is then right as it is.
///
/// out: [T, H D], dense; lse: [H, T], any strides, or [S, H, T / S, 1] for S sequences of one length, fp32
/// (fp64 for fp64 out); sinks: [H], floating. Computes in lse's type, and rounds out once. Throws Error on
/// shapes that don't fit.
void apply_sinks_(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& sinks);

namespace reference {

/// The same by plain ATen calls, on any device and in fp64.
void apply_sinks_(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& sinks);

}  // namespace reference
}  // namespace lorikeet::ops
