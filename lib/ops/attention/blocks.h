#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

// Attention by plain ATen calls on any device, in any floating dtype, with every option: a block of queries
// at a time, so that memory grows with the number of tokens and not with its square.
namespace lorikeet::ops::blocks {

/// Scores of a block over all heads, at most (a block has one query at least). Forward holds one such tensor
/// of the wide type at a time, backward two, with a soft cap three; where products have 16-bit operands, also
/// one of these, and in backward a block's part of the keys' or values' gradient once more.
inline constexpr std::int64_t kBlockScores = std::int64_t{1} << 24;

/// As cpu::attention_forward, for any floating dtype; lse is of the wide type (see wide.h). On a GPU 16-bit
/// operands are multiplied as they are, with sums in fp32; probabilities and, in backward, the scores'
/// gradients are rounded for that, as FlashAttention does. Elsewhere, and under reference_ops(), keys and
/// values of a narrower type are widened a tile of bounded size at a time.
void attention_forward(const at::Tensor& q, const std::vector<at::Tensor>& k,
                       const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                       const AttentionOptions& options, at::Tensor& out, at::Tensor& lse,
                       std::int64_t block_scores = kBlockScores);

/// As cpu::attention_backward. Each block's scores are computed again; gradients of keys and values are
/// summed in the wide type.
void attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const HeadLayout& layout, const Sequences& sequences,
                        const AttentionOptions& options, at::Tensor& dqkv,
                        std::int64_t block_scores = kBlockScores);

}  // namespace lorikeet::ops::blocks
