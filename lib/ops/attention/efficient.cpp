#include <ATen/ATen.h>

#include <limits>
#include <optional>

#include "ops/attention/cuda.h"
#include "ops/attention/heads.h"

namespace lorikeet::ops::cuda {
namespace {

// sdp::CustomMaskType
constexpr std::int64_t kNoMask = 0, kCausal = 1;

// The kernels take as many key heads as query heads: those of a group are copies, unless one serves all.
at::Tensor for_all_heads(const at::Tensor& rows, std::int64_t heads) {
  return rows.unsqueeze(2)
      .expand({rows.size(0), rows.size(1), heads / rows.size(1), rows.size(2)})
      .reshape({1, rows.size(0), heads, rows.size(2)});
}

// All three [1, T, H, D].
Heads split(const at::Tensor& qkv, const HeadLayout& layout) {
  const auto [q, k, v] = split_heads(qkv, layout);
  return {q.unsqueeze(0), for_all_heads(k, layout.heads), for_all_heads(v, layout.heads)};
}

std::optional<std::int64_t> window_of(const AttentionOptions& options) {
  return options.window > 0 ? std::optional(options.window) : std::nullopt;
}

// Of keys' and values' gradients the sum over a group's heads.
HeadGradients gradients_of(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                           const HeadLayout& layout) {
  const auto of_group = [&](const at::Tensor& gradient) {
    const at::Tensor rows = gradient.squeeze(0);
    return layout.heads == layout.kv_heads ? rows : rows.unflatten(1, {layout.kv_heads, -1}).sum(2);
  };
  return {dq.squeeze(0), of_group(dk), of_group(dv)};
}

// Rows of the kernels' statistics: blocks of 32.
std::int64_t padded_rows(const Sequences& sequences) { return (sequences.max_seqlen + 31) / 32 * 32; }

at::Tensor dry_statistics(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences) {
  return at::empty({std::ssize(sequences.cu_seqlens) - 1, layout.heads, padded_rows(sequences)},
                   qkv.options().dtype(at::kFloat));
}

// The tensors that the kernels make, which have no form without data.
at::Tensor dry_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                       AttentionStatistics* statistics) {
  const Heads heads = split(qkv, layout);
  const auto tokens = qkv.size(0);
  const auto out = at::empty({tokens, layout.heads * layout.head_dim}, qkv.options());
  if (statistics != nullptr) {
    const auto lse = dry_statistics(qkv, layout, sequences);
    const auto seed = at::empty({}, qkv.options().dtype(at::kLong));
    *statistics = {at::empty({layout.heads, tokens}, lse.options()), seed, at::empty_like(seed)};
  }
  return out;
}

// What the backward kernel sums gradients of queries in, and those of a block of keys and values, for every
// sequence as if it was the longest: Params::workspace_size of libtorch's
// mem_eff_attention/kernel_backward.h, with the largest of its blocks.
at::Tensor dry_workspace(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences) {
  constexpr std::int64_t kRows = 128, kColumns = 64;
  const auto up_to = [](std::int64_t number, std::int64_t unit) { return (number + unit - 1) / unit * unit; };
  return at::empty({std::ssize(sequences.cu_seqlens) - 1, layout.heads,
                    up_to(sequences.max_seqlen, kRows) + 2 * kRows, up_to(layout.head_dim, kColumns)},
                   qkv.options().dtype(at::kFloat));
}

HeadGradients dry_backward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences) {
  const Heads heads = split(qkv, layout);
  const auto lse = dry_statistics(qkv, layout, sequences);
  const auto gradient = [&] { return at::empty(heads.q.sizes(), qkv.options()); };
  const auto dq = gradient(), dk = gradient(), dv = gradient();
  dry_workspace(qkv, layout, sequences);
  return gradients_of(dq, dk, dv, layout);
}

// Where the kernels keep the statistics of T rows: in [S, H, the longest sequence], which many short
// sequences beside a long one make far larger than [H, T]; the latter is what is kept.
struct Places {
  Places(const at::Tensor& ends, std::int64_t rows) {
    const at::Tensor row = at::arange(rows, ends.options());
    sequence = at::searchsorted(ends, row, /*out_int32=*/false, /*right=*/true).sub_(1);
    position = row - ends.index_select(0, sequence);
  }
  c10::List<std::optional<at::Tensor>> indices() const {
    return c10::List<std::optional<at::Tensor>>({sequence, std::nullopt, position});
  }
  at::Tensor sequence, position;  // [T]
};

}  // namespace

at::Tensor efficient_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                             const AttentionOptions& options, AttentionStatistics* statistics) {
  if (qkv.is_meta()) return dry_forward(qkv, layout, sequences, statistics);
  const at::Tensor& ends = ends_on_gpu(sequences);
  const Heads heads = split(qkv, layout);
  const auto [out, lse, seed, offset, longest_q, longest_k] = at::_efficient_attention_forward(
      heads.q, heads.k, heads.v, /*bias=*/std::nullopt, ends, ends, sequences.max_seqlen,
      sequences.max_seqlen, /*dropout_p=*/0.0, options.causal ? kCausal : kNoMask,
      /*compute_log_sumexp=*/statistics != nullptr, options.scale, /*seqlen_k=*/std::nullopt,
      window_of(options));
  if (statistics != nullptr) *statistics = {lse.index(Places(ends, qkv.size(0)).indices()).t(), seed, offset};
  return out.view({qkv.size(0), layout.heads * layout.head_dim});
}

HeadGradients efficient_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                                 const AttentionStatistics& statistics, const HeadLayout& layout,
                                 const Sequences& sequences, const AttentionOptions& options) {
  if (qkv.is_meta()) return dry_backward(qkv, layout, sequences);
  const at::Tensor& ends = ends_on_gpu(sequences);
  const Heads heads = split(qkv, layout);
  // As forward's kernel leaves it: padded to blocks of 32 rows, with infinity, which makes their scores
  // vanish.
  at::Tensor lse = at::full({ends.size(0) - 1, layout.heads, padded_rows(sequences)},
                            std::numeric_limits<float>::infinity(), statistics.lse.options());
  lse.index_put_(Places(ends, qkv.size(0)).indices(), statistics.lse.t());
  const auto [dq, dk, dv, dbias] = at::_efficient_attention_backward(
      dout.view(heads.q.sizes()), heads.q, heads.k, heads.v, /*bias=*/std::nullopt, out.view(heads.q.sizes()),
      ends, ends, sequences.max_seqlen, sequences.max_seqlen, lse,
      /*dropout_p=*/0.0, statistics.rng_state, statistics.unused, options.causal ? kCausal : kNoMask,
      /*bias_requires_grad=*/false, options.scale, /*num_splits_key=*/std::nullopt, window_of(options));
  return gradients_of(dq, dk, dv, layout);
}

}  // namespace lorikeet::ops::cuda
