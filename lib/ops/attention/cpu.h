#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

namespace lorikeet::ops::cpu {

/// out [T, H D], and lse [H, T] fp32 = log of each query's softmax denominator, for qkv [T, width] dense,
/// fp32 or bf16. lse may be undefined.
void attention_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                       const AttentionOptions& options, at::Tensor& out, at::Tensor& lse);

/// dqkv [T, width], every element written, from dout [T, H D] and what forward gave.
void attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const HeadLayout& layout, const Sequences& sequences,
                        const AttentionOptions& options, at::Tensor& dqkv);

/// As ops::attention_cached, for one dtype, fp32 or bf16, with dense last dimensions; out [Tq, H D] dense.
void attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k, const std::vector<at::Tensor>& v,
                      const std::vector<std::int32_t>& cu_q, const AttentionOptions& options,
                      at::Tensor& out);

}  // namespace lorikeet::ops::cpu
