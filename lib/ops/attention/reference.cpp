#include <ATen/ATen.h>

#include <limits>

#include "ops/attention/attention.h"
#include "ops/attention/heads.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {
namespace {

// True where query row i (the last `queries` positions of `keys`) may not see key j. [queries, keys].
at::Tensor hidden_keys(std::int64_t queries, std::int64_t keys, const AttentionOptions& options,
                       at::Device device) {
  const auto i = at::arange(keys - queries, keys, at::TensorOptions(at::kLong).device(device)).unsqueeze(1);
  const auto j = at::arange(keys, at::TensorOptions(at::kLong).device(device)).unsqueeze(0);
  auto hidden = at::zeros({queries, keys}, at::TensorOptions(at::kBool).device(device));
  if (options.causal) hidden = hidden.bitwise_or(j > i);
  if (options.window > 0) hidden = hidden.bitwise_or(i - j >= options.window);
  return hidden;
}

// One sequence: q [n, H, D], k and v [L, Hkv, D], already wide. Returns [n, H, D].
at::Tensor one_sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const AttentionOptions& options, const at::Tensor& sinks) {
  const auto group = q.size(1) / k.size(1);
  const auto queries = q.transpose(0, 1);                                   // [H, n, D]
  const auto keys = k.transpose(0, 1).repeat_interleave(group, 0);          // [H, L, D]
  const auto values = v.transpose(0, 1).repeat_interleave(group, 0);        // [H, L, D]
  auto scores = at::matmul(queries, keys.transpose(1, 2)) * options.scale;  // [H, n, L]
  if (options.soft_cap > 0) scores = at::tanh(scores / options.soft_cap) * options.soft_cap;
  scores = scores.masked_fill(hidden_keys(q.size(0), k.size(0), options, q.device()),
                              -std::numeric_limits<double>::infinity());
  if (sinks.defined())
    scores = at::cat({scores, sinks.to(q.scalar_type()).view({-1, 1, 1}).expand({-1, q.size(0), 1})}, 2);
  const auto probabilities = at::softmax(scores, -1).slice(2, 0, k.size(0));
  return at::matmul(probabilities, values).transpose(0, 1);
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                     const AttentionOptions& options, const at::Tensor& sinks) {
  const auto [q, k, v] = split_heads(qkv, layout);
  const auto& ends = sequences.cu_seqlens;
  return reference::attention_cached(q, by_sequence(k, ends), by_sequence(v, ends), ends, options, sinks);
}

at::Tensor attention_cached(const at::Tensor& q, const std::vector<at::Tensor>& k,
                            const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                            const AttentionOptions& options, const at::Tensor& sinks) {
  const auto wide = wide_type(q);
  std::vector<at::Tensor> outputs;
  for (std::size_t s = 0; s < k.size(); ++s) {
    if (cu_q[s] == cu_q[s + 1]) continue;
    outputs.push_back(one_sequence(q.slice(0, cu_q[s], cu_q[s + 1]).to(wide), k[s].to(wide), v[s].to(wide),
                                   options, sinks));
  }
  const auto out = outputs.empty() ? q.clone() : at::cat(outputs).to(q.scalar_type());
  return out.reshape({q.size(0), q.size(1) * q.size(2)});
}

}  // namespace lorikeet::ops::reference
