#include "ops/attention/cuda.h"

#include <ATen/ATen.h>

#include <tuple>
#include <utility>

#include "ops/attention/heads.h"
#include "ops/check.h"

namespace lorikeet::ops::cuda {
namespace {

// FlashAttention counts the keys left and right of a query, without itself; nullopt is no limit.
std::optional<c10::SymInt> window_left(const AttentionOptions& options) {
  if (options.window == 0) return std::nullopt;
  return c10::SymInt(options.window - 1);
}
std::optional<c10::SymInt> window_right(const AttentionOptions& options) {
  if (options.window == 0) return std::nullopt;
  return c10::SymInt(options.causal ? 0 : -1);
}

// The tensors that ATen's kernels make, which have no Meta form in C++.
at::Tensor dry_forward(const at::Tensor& qkv, const HeadLayout& layout, AttentionStatistics* statistics) {
  const auto tokens = qkv.size(0);
  auto out = at::empty({tokens, layout.heads * layout.head_dim}, qkv.options());
  AttentionStatistics made{.lse = at::empty({layout.heads, tokens}, qkv.options().dtype(at::kFloat)),
                           .rng_state = at::empty({2}, qkv.options().dtype(at::kLong)),
                           .unused = at::empty({0}, qkv.options().dtype(at::kLong))};
  if (statistics != nullptr) *statistics = std::move(made);
  return out;
}

}  // namespace

HeadGradients dry_gradients(const at::Tensor& qkv, const HeadLayout& layout, std::int64_t sum_rows) {
  const std::int64_t unit = layout.head_dim <= 128 ? 32 : 64;
  const std::int64_t rounded_dim = (layout.head_dim + unit - 1) / unit * unit;
  const auto gradient = [&](std::int64_t heads) {
    return at::empty({qkv.size(0), heads, layout.head_dim}, qkv.options());
  };
  const auto dq = gradient(layout.heads), dk = gradient(layout.kv_heads), dv = gradient(layout.kv_heads);
  {
    const auto fp32 = qkv.options().dtype(at::kFloat);
    const auto products = at::empty({layout.heads, sum_rows}, fp32);
    const auto sums = at::empty({sum_rows, layout.heads, rounded_dim}, fp32);
    at::Tensor all_dk, all_dv;
    if (layout.heads != layout.kv_heads) {
      all_dk = gradient(layout.heads);
      all_dv = gradient(layout.heads);
    }
  }
  return {dq, dk, dv};
}

const at::Tensor& ends_on_gpu(const Sequences& sequences) {
  const at::Tensor& ends = sequences.cu_seqlens_device;
  check_tensor(ends.defined() && ends.is_cuda() && ends.scalar_type() == at::kInt, "attention",
               "cu_seqlens_device as int32 on the GPU", ends);
  return ends;
}

at::Tensor flash_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                         const AttentionOptions& options, AttentionStatistics* statistics) {
  if (qkv.is_meta()) return dry_forward(qkv, layout, statistics);
  const at::Tensor& ends = ends_on_gpu(sequences);
  const auto [q, k, v] = split_heads(qkv, layout);
  const auto [out, lse, rng_state, unused, debug] = at::_flash_attention_forward_symint(
      q, k, v, ends, ends, sequences.max_seqlen, sequences.max_seqlen, /*dropout_p=*/0.0, options.causal,
      /*return_debug_mask=*/false, options.scale, window_left(options), window_right(options));
  if (statistics != nullptr) *statistics = {lse, rng_state, unused};
  return out.reshape({qkv.size(0), layout.heads * layout.head_dim});
}

HeadGradients flash_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                             const AttentionStatistics& statistics, const HeadLayout& layout,
                             const Sequences& sequences, const AttentionOptions& options) {
  if (qkv.is_meta()) {
    // In blocks of 128 rows for each sequence. Deterministic, it makes several such sums, by the GPU's
    // multiprocessors: that a dry run doesn't know. Source: mha_varlen_bwd of libtorch's flash_api.cpp.
    return dry_gradients(qkv, layout, qkv.size(0) + 128 * (std::ssize(sequences.cu_seqlens) - 1));
  }
  const at::Tensor& ends = sequences.cu_seqlens_device;
  const auto [q, k, v] = split_heads(qkv, layout);
  const auto [dq, dk, dv] = at::_flash_attention_backward_symint(
      dout.view(q.sizes()), q, k, v, out.view(q.sizes()), statistics.lse, ends, ends, sequences.max_seqlen,
      sequences.max_seqlen, /*dropout_p=*/0.0, options.causal, statistics.rng_state, statistics.unused,
      options.scale, window_left(options), window_right(options));
  return {dq, dk, dv};
}

void flash_cached(const at::Tensor& q, const std::vector<at::Tensor>& k, const std::vector<at::Tensor>& v,
                  const std::vector<std::int32_t>& cu_q, const AttentionOptions& options, at::Tensor& out,
                  at::Tensor& lse) {
  const at::Tensor rows = out.view(q.sizes());
  for (std::size_t s = 0; s < k.size(); ++s) {
    const std::int64_t begin = cu_q[s], queries = cu_q[s + 1] - begin;
    if (queries == 0) continue;
    // Without cu_seqlens, a batch of one; the kernel takes the queries for the last positions.
    const auto result = at::_flash_attention_forward_symint(
        q.slice(0, begin, begin + queries).unsqueeze(0), k[s].unsqueeze(0), v[s].unsqueeze(0), {}, {},
        queries, k[s].size(0), /*dropout_p=*/0.0, options.causal, /*return_debug_mask=*/false, options.scale,
        window_left(options), window_right(options));
    rows.slice(0, begin, begin + queries).copy_(std::get<0>(result).squeeze(0));
    if (lse.defined()) lse.slice(1, begin, begin + queries).copy_(std::get<1>(result).squeeze(0));
  }
}

}  // namespace lorikeet::ops::cuda
