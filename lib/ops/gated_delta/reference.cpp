#include <ATen/ATen.h>

#include <cmath>

#include "ops/gated_delta/gated_delta.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {
namespace {

// [T, heads * dim] -> [T, value_heads, dim], each head of length 1.
at::Tensor unit_heads(const at::Tensor& rows, std::int64_t heads, std::int64_t copies) {
  const at::Tensor split = rows.unflatten(1, {heads, -1});
  const at::Tensor norm = at::rsqrt((split * split).sum(-1, /*keepdim=*/true) + 1e-6);
  return (split * norm).unsqueeze(2).expand({-1, -1, copies, -1}).flatten(1, 2);
}

}  // namespace

at::Tensor gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                       const DeltaLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states) {
  const at::ScalarType wide = wide_type(qkv);
  const at::Tensor all = qkv.to(wide), gate = gates.to(wide);
  const std::int64_t heads = layout.value_heads, copies = heads / layout.key_heads;
  const at::Tensor q = unit_heads(all.narrow(1, 0, layout.k_begin()), layout.key_heads, copies) /
                       std::sqrt(static_cast<double>(layout.key_dim));
  const at::Tensor k =
      unit_heads(all.narrow(1, layout.k_begin(), layout.k_begin()), layout.key_heads, copies);
  const at::Tensor v = all.slice(1, layout.v_begin()).unflatten(1, {heads, layout.value_dim});
  const at::Tensor beta = gate.narrow(1, 0, heads).sigmoid();
  const at::Tensor kept = at::exp(-decay.a_log.to(wide).exp() *
                                  at::softplus(gate.narrow(1, heads, heads) + decay.dt_bias.to(wide)));
  // Of each token: a select's backward would make a gradient of all tokens for each of them.
  const auto of_tokens = [](const at::Tensor& all_rows) { return all_rows.unbind(0); };
  const auto qs = of_tokens(q.unsqueeze(3)), ks = of_tokens(k.unsqueeze(3)), vs = of_tokens(v.unsqueeze(2)),
             betas = of_tokens(beta.unsqueeze(2).unsqueeze(3)),
             decays = of_tokens(kept.unsqueeze(2).unsqueeze(3));
  std::vector<at::Tensor> rows;
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
    at::Tensor state = at::zeros({heads, layout.key_dim, layout.value_dim}, all.options());
    if (states != nullptr && (*states)[s].defined()) state = (*states)[s].to(wide);
    for (auto t = static_cast<std::size_t>(sequences.cu_seqlens[s]);
         t < static_cast<std::size_t>(sequences.cu_seqlens[s + 1]); ++t) {
      state = state * decays[t];
      const at::Tensor seen = (state * ks[t]).sum(1, /*keepdim=*/true);
      state = state + ks[t] * ((vs[t] - seen) * betas[t]);
      rows.push_back((state * qs[t]).sum(1).flatten());
    }
    if (states != nullptr) (*states)[s] = state;
  }
  if (rows.empty()) return at::zeros({qkv.size(0), heads * layout.value_dim}, qkv.options());
  return at::stack(rows).to(qkv.scalar_type());
}

}  // namespace lorikeet::ops::reference
