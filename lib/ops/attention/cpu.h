#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

namespace lorikeet::ops::cpu {

/// The queries q [Tq, H, D] of all sequences: rows [cu_q[s], cu_q[s + 1]) are the last positions of one whose
/// keys and values are k[s], v[s] [L, Hkv, D]. Gives out [Tq, H D], dense, and lse [H, Tq] fp32, the
/// logarithm of each softmax's denominator, unless it is undefined. One dtype, fp32 or bf16; last dimensions
/// are dense.
void attention_forward(const at::Tensor& q, const std::vector<at::Tensor>& k,
                       const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                       const AttentionOptions& options, at::Tensor& out, at::Tensor& lse);

/// dqkv [T, width], every element written, from dout [T, H D] and what forward gave for qkv [T, width] dense.
void attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const HeadLayout& layout, const Sequences& sequences,
                        const AttentionOptions& options, at::Tensor& dqkv);

/// As ops::apply_sinks_ (sinks.h) for fp32 or bf16 out. lse [H, T] and sinks [H]: dense, in fp32.
void apply_sinks(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& sinks);

}  // namespace lorikeet::ops::cpu
