#include "card/plain_attention.h"

#include <ATen/ATen.h>

#include <limits>

namespace lorikeet::card {
namespace {

// [H, L, D] fp32 of the rows [L, H', D], each head of H' repeated for its group.
at::Tensor heads_of(const at::Tensor& rows, std::int64_t heads) {
  return rows.to(at::kFloat).transpose(0, 1).repeat_interleave(heads / rows.size(1), 0);
}

// [H, n, L], minus infinity where a query doesn't see the key.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, double scale, Window window) {
  const at::Tensor query = at::arange(k.size(1) - q.size(1), k.size(1)).unsqueeze(1);
  const at::Tensor key = at::arange(k.size(1)).unsqueeze(0);
  at::Tensor hidden = at::zeros({q.size(1), k.size(1)}, at::kBool);
  if (window.right >= 0) hidden = hidden.logical_or(key > query + window.right);
  if (window.left >= 0) hidden = hidden.logical_or(key < query - window.left);
  return (at::matmul(q, k.transpose(1, 2)) * scale)
      .masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

}  // namespace

std::pair<at::Tensor, at::Tensor> plain_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                double scale, Window window) {
  const std::int64_t heads = q.size(1);
  const at::Tensor scores = scores_of(heads_of(q, heads), heads_of(k, heads), scale, window);
  return {at::matmul(at::softmax(scores, -1), heads_of(v, heads)).transpose(0, 1),
          at::logsumexp(scores, {-1})};
}

PlainGradients plain_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, double scale,
                              Window window) {
  const std::int64_t heads = q.size(1), kv_heads = k.size(1);
  const at::Tensor hq = heads_of(q, heads), hk = heads_of(k, heads), hv = heads_of(v, heads);
  const at::Tensor hdout = heads_of(dout, heads);
  const at::Tensor p = (scores_of(hq, hk, scale, window) - lse.unsqueeze(-1)).exp();
  const at::Tensor delta = (hdout * heads_of(out, heads)).sum(-1, true);
  const at::Tensor ds = p * (at::matmul(hdout, hv.transpose(1, 2)) - delta) * scale;
  // The heads of a group share their keys and values.
  const auto summed = [&](const at::Tensor& t) {
    return t.view({kv_heads, heads / kv_heads, t.size(1), t.size(2)}).sum(1).transpose(0, 1);
  };
  return {at::matmul(ds, hk).transpose(0, 1), summed(at::matmul(ds.transpose(1, 2), hq)),
          summed(at::matmul(p.transpose(1, 2), hdout))};
}

}  // namespace lorikeet::card
