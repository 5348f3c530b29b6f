#include <ATen/ATen.h>

#include <tuple>
#include <utility>

#include "ops/attention/cuda.h"
#include "ops/attention/heads.h"

namespace lorikeet::ops::cuda {
namespace {

// Rows [T, heads, D] as a batch of `count` sequences of one length: [count, heads, length, D].
at::Tensor batch_of(const at::Tensor& rows, std::int64_t count) {
  return rows.view({count, rows.size(0) / count, rows.size(1), rows.size(2)}).transpose(1, 2);
}

// Back again, dense. A copy only where cuDNN laid heads before tokens.
at::Tensor rows_of(const at::Tensor& batch) {
  return batch.transpose(1, 2)
      .reshape({batch.size(0) * batch.size(2), batch.size(1), batch.size(3)})
      .contiguous();
}

std::int64_t count_of(const Sequences& sequences) { return std::ssize(sequences.cu_seqlens) - 1; }

// The tensors that ATen makes. Source: _scaled_dot_product_cudnn_attention's forward in libtorch's
// attention.cu.
at::Tensor dry_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                       AttentionStatistics* statistics) {
  auto out = at::empty({qkv.size(0), layout.heads * layout.head_dim}, qkv.options());
  AttentionStatistics made{
      .lse = at::empty({count_of(sequences), layout.heads, sequences.max_seqlen, 1},
                       qkv.options().dtype(at::kFloat)),
      .rng_state = at::empty({}, qkv.options().dtype(at::kLong)),
      .unused = at::empty({}, qkv.options().dtype(at::kLong)),
  };
  if (statistics != nullptr) *statistics = std::move(made);
  return out;
}

}  // namespace

at::Tensor cudnn_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                         const AttentionOptions& options, AttentionStatistics* statistics) {
  if (qkv.is_meta()) return dry_forward(qkv, layout, sequences, statistics);
  const auto [q, k, v] = split_heads(qkv, layout);
  const std::int64_t count = count_of(sequences), length = sequences.max_seqlen;
  const auto made = at::_cudnn_attention_forward(
      batch_of(q, count), batch_of(k, count), batch_of(v, count), /*attn_bias=*/{}, /*cum_seq_q=*/{},
      /*cum_seq_k=*/{}, length, length, /*compute_log_sumexp=*/statistics != nullptr, /*dropout_p=*/0.0,
      options.causal, /*return_debug_mask=*/false, options.scale);
  if (statistics != nullptr) *statistics = {std::get<1>(made), std::get<6>(made), std::get<7>(made)};
  return rows_of(std::get<0>(made)).view({qkv.size(0), layout.heads * layout.head_dim});
}

HeadGradients cudnn_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                             const AttentionStatistics& statistics, const HeadLayout& layout,
                             const Sequences& sequences, const AttentionOptions& options) {
  // An H200's workspace was found to be as large (cuDNN 9.19, benchmarks/results/card.md).
  if (qkv.is_meta()) return dry_gradients(qkv, layout, /*sum_rows=*/qkv.size(0));
  const auto [q, k, v] = split_heads(qkv, layout);
  const std::int64_t count = count_of(sequences), length = sequences.max_seqlen;
  const auto [dq, dk, dv] = at::_cudnn_attention_backward(
      batch_of(dout.view(q.sizes()), count), batch_of(q, count), batch_of(k, count), batch_of(v, count),
      batch_of(out.view(q.sizes()), count), statistics.lse, statistics.rng_state, statistics.unused,
      /*attn_bias=*/{}, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, length, length, /*dropout_p=*/0.0, options.causal,
      options.scale);
  return {rows_of(dq), rows_of(dk), rows_of(dv)};
}

}  // namespace lorikeet::ops::cuda
