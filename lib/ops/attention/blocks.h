#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

// Attention by plain ATen calls on any device, in any floating dtype, with every option: a block of queries
// at a time, so that memory grows with the number of tokens and not with its square.
namespace lorikeet::ops::blocks {

/// Scores of a block over all heads, at most (a block has one query at least). Forward holds one such tensor
/// of the wide type at a time, backward two, with a soft cap three.
inline constexpr std::int64_t kBlockScores = std::int64_t{1} << 24;

/// out [T, H D] in qkv's dtype, and lse [H, T] in the wide type (see wide.h), the logarithm of each softmax's
/// denominator, for qkv [T, width] dense. lse may be undefined.
void attention_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                       const AttentionOptions& options, at::Tensor& out, at::Tensor& lse,
                       std::int64_t block_scores = kBlockScores);

/// dqkv [T, width], every element written, from dout [T, H D] and what forward gave. Each block's scores are
/// computed again; gradients of keys and values are summed in the wide type.
void attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const HeadLayout& layout, const Sequences& sequences,
                        const AttentionOptions& options, at::Tensor& dqkv,
                        std::int64_t block_scores = kBlockScores);

/// As ops::attention_cached, into out [Tq, H D]. Keys and values of a narrower type are widened a tile of
/// bounded size at a time.
void attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k, const std::vector<at::Tensor>& v,
                      const std::vector<std::int32_t>& cu_q, const AttentionOptions& options,
                      at::Tensor& out);

}  // namespace lorikeet::ops::blocks
