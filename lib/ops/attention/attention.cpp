#include "ops/attention/attention.h"

#include <ATen/ATen.h>

#include <utility>

#include "ops/attention/blocks.h"
#include "ops/attention/cpu.h"
#include "ops/attention/cuda.h"
#include "ops/attention/heads.h"
#include "ops/attention/kernel_choice.h"
#include "ops/attention/sinks.h"
#include "ops/check.h"
#include "ops/vector.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "attention";

void check_options(const AttentionOptions& options) {
  check(options.window >= 0 && options.soft_cap >= 0, kOp, "window and soft_cap not below 0",
        [&] { return std::to_string(options.window) + " and " + std::to_string(options.soft_cap); });
}

void check_inputs(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                  const AttentionOptions& options) {
  check(layout.kv_heads > 0 && layout.heads % layout.kv_heads == 0 && layout.head_dim > 0, kOp,
        "query heads that are a multiple of the key heads",
        [&] { return std::to_string(layout.heads) + " and " + std::to_string(layout.kv_heads); });
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point() &&
                   qkv.is_contiguous(),
               kOp, "a dense floating matrix [tokens, (heads + 2 kv_heads) * head_dim]", qkv);
  const auto& ends = sequences.cu_seqlens;
  check(!ends.empty() && ends.front() == 0 && ends.back() == qkv.size(0) &&
            std::is_sorted(ends.begin(), ends.end()),
        kOp, "cu_seqlens ascending from 0 to the number of tokens",
        [&] { return std::to_string(ends.size()) + " entries for " + describe(qkv); });
  check_options(options);
}

void check_sinks(const char* op, const at::Tensor& sinks, std::int64_t heads) {
  if (!sinks.defined()) return;
  check_tensor(sinks.dim() == 1 && sinks.size(0) == heads && sinks.is_floating_point(), op,
               "a sink for each query head", sinks);
}

// Without sinks. A token at least.
at::Tensor forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                   const AttentionOptions& options, AttentionStatistics* statistics) {
  const std::int64_t tokens = qkv.size(0), width = layout.heads * layout.head_dim;
  const AttentionKernel kernel =
      choose_attention_kernel(attention_target(qkv), layout.head_dim, options, common_length(sequences));
  if (kernel == AttentionKernel::kFlash)
    return cuda::flash_forward(qkv, layout, sequences, options, statistics);
  if (kernel == AttentionKernel::kCudnn)
    return cuda::cudnn_forward(qkv, layout, sequences, options, statistics);
  if (kernel == AttentionKernel::kEfficient)
    return cuda::efficient_forward(qkv, layout, sequences, options, statistics);
  auto out = at::empty({tokens, width}, qkv.options());
  at::Tensor lse;
  if (statistics != nullptr) {
    lse = at::empty({layout.heads, tokens}, qkv.options().dtype(wide_type(qkv)));
    statistics->lse = lse;
  }
  const auto [q, k, v] = split_heads(qkv, layout);
  const auto& ends = sequences.cu_seqlens;
  if (kernel == AttentionKernel::kCpu) {
    cpu::attention_forward(q, by_sequence(k, ends), by_sequence(v, ends), ends, options, out, lse);
  } else {
    blocks::attention_forward(q, by_sequence(k, ends), by_sequence(v, ends), ends, options, out, lse);
  }
  return out;
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                     const AttentionOptions& options, AttentionStatistics* statistics,
                     const at::Tensor& sinks) {
  check_inputs(qkv, layout, sequences, options);
  check_sinks(kOp, sinks, layout.heads);
  if (qkv.size(0) == 0) return at::empty({0, layout.heads * layout.head_dim}, qkv.options());
  if (!sinks.defined()) return forward(qkv, layout, sequences, options, statistics);
  AttentionStatistics own;
  AttentionStatistics& filled = statistics != nullptr ? *statistics : own;
  at::Tensor out = forward(qkv, layout, sequences, options, &filled);
  apply_sinks_(out, filled.lse, sinks);
  return out;
}

HeadGradients attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                                 const AttentionStatistics& statistics, const HeadLayout& layout,
                                 const Sequences& sequences, const AttentionOptions& options) {
  check_inputs(qkv, layout, sequences, options);
  if (qkv.size(0) == 0) return HeadGradients::of(at::empty_like(qkv), layout);
  check(statistics.lse.defined(), kOp, "the statistics that forward filled", [] { return "none"; });
  const AttentionKernel kernel =
      choose_attention_kernel(attention_target(qkv), layout.head_dim, options, common_length(sequences));
  if (kernel == AttentionKernel::kFlash)
    return cuda::flash_backward(dout.contiguous(), qkv, out, statistics, layout, sequences, options);
  if (kernel == AttentionKernel::kCudnn)
    return cuda::cudnn_backward(dout.contiguous(), qkv, out, statistics, layout, sequences, options);
  if (kernel == AttentionKernel::kEfficient)
    return cuda::efficient_backward(dout.contiguous(), qkv, out, statistics, layout, sequences, options);
  auto dqkv = at::empty(qkv.sizes(), qkv.options());
  if (kernel == AttentionKernel::kCpu) {
    cpu::attention_backward(dout.contiguous(), qkv, out, statistics.lse, layout, sequences, options, dqkv);
  } else {
    blocks::attention_backward(dout.contiguous(), qkv, out, statistics.lse, layout, sequences, options, dqkv);
  }
  return HeadGradients::of(std::move(dqkv), layout);
}

at::Tensor attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k,
                            const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                            const AttentionOptions& options, const at::Tensor& sinks) {
  constexpr const char* kCached = "attention_cached";
  check_options(options);
  check_tensor(q.defined() && q.dim() == 3 && q.is_floating_point(), kCached,
               "queries [tokens, heads, head_dim]", q);
  check_sinks(kCached, sinks, q.size(1));
  check(k.size() == v.size() && cu_q.size() == k.size() + 1 && cu_q.front() == 0 &&
            cu_q.back() == q.size(0) && std::is_sorted(cu_q.begin(), cu_q.end()),
        kCached, "keys, values and a range of queries for each sequence",
        [&] { return std::to_string(k.size()) + " keys, " + std::to_string(v.size()) + " values"; });
  bool fast = vector::has_fast_elements(q) && q.stride(2) == 1;
  for (std::size_t s = 0; s < k.size(); ++s) {
    check(k[s].dim() == 3 && k[s].sizes() == v[s].sizes() && k[s].size(2) == q.size(2) &&
              k[s].size(1) == k[0].size(1) && k[s].size(1) > 0 && q.size(1) % k[s].size(1) == 0 &&
              k[s].size(0) >= cu_q[s + 1] - cu_q[s] && k[s].scalar_type() == q.scalar_type(),
          kCached, "keys and values [at least the queries, kv_heads, head_dim] of the queries' dtype",
          [&] { return describe(k[s]) + " and " + describe(v[s]); });
    fast = fast && k[s].is_cpu() && v[s].is_cpu() && v[s].scalar_type() == q.scalar_type() &&
           k[s].stride(2) == 1 && v[s].stride(2) == 1;
  }
  auto out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  const AttentionKernel kernel = choose_attention_kernel(attention_target(q), q.size(2), options);
  at::Tensor lse;
  if (sinks.defined()) lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(wide_type(q)));
  if (fast) {
    cpu::attention_forward(q, k, v, cu_q, options, out, lse);
  } else if (kernel == AttentionKernel::kFlash) {
    cuda::flash_cached(q, k, v, cu_q, options, out, lse);
  } else {
    blocks::attention_forward(q, k, v, cu_q, options, out, lse);
  }
  if (sinks.defined()) apply_sinks_(out, lse, sinks);
  return out;
}

}  // namespace lorikeet::ops
