#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/gated_delta/gated_delta.h"

namespace lorikeet::ops::cpu {

/// As ops::gated_delta, for dense fp32 or bf16 (or dry for the CPU); out: [T, value_heads * value_dim] of
/// qkv's dtype. Products and sums are fp32 for both. Whole chunks are computed by their WY form; where a
/// chunk has few tokens, the last one of a sequence or decoding, they are computed one by one.
void gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                 const DeltaLayout& layout, const Sequences& sequences, std::vector<at::Tensor>* states,
                 at::Tensor& out);

/// As ops::gated_delta_backward. Each thread keeps, of the sequence and key head that it works on, the
/// states at the chunks' begins.
void gated_delta_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& gates,
                          const DeltaDecay& decay, const DeltaLayout& layout, const Sequences& sequences,
                          DeltaGradients& gradients);

}  // namespace lorikeet::ops::cpu
