// FlashAttention's two operators over packed sequences, by plain attention in fp32 of each sequence. They
// refuse what the card's kernels refuse.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "card/alias.h"
#include "card/report.h"
#include "card/streams.h"

namespace lorikeet::card {
namespace {

using OptionalSize = std::optional<c10::SymInt>;
using OptionalTensor = std::optional<at::Tensor>;

// Which keys a query sees: at most `left` before it and `right` after it; a negative number is no limit.
struct Window {
  std::int64_t left, right;
};

Window window_of(bool causal, const OptionalSize& left, const OptionalSize& right) {
  const auto limit = [](const OptionalSize& side) { return side ? side->expect_int() : -1; };
  return {limit(left), causal ? 0 : limit(right)};
}

void check_operand(const at::Tensor& rows) {
  TORCH_CHECK(rows.is_cuda() && at::isReducedFloatingType(rows.scalar_type()),
              "FlashAttention only supports fp16 and bf16 data type");
  TORCH_CHECK(rows.dim() == 3 && rows.stride(-1) == 1,
              "FlashAttention: expected [T, heads, head_dim], dense in "
              "its last dimension");
  TORCH_CHECK(rows.size(-1) % 8 == 0 && rows.size(-1) <= 256,
              "FlashAttention: expected a head_dim of at most 256 and a multiple of 8, got ", rows.size(-1));
  TORCH_CHECK(reinterpret_cast<std::uintptr_t>(rows.const_data_ptr()) % 16 == 0,
              "FlashAttention: expected rows aligned to 16 bytes");
  note_access(rows.storage().data(), /*writes=*/false, "FlashAttention");
}

void check_ends(const at::Tensor& ends, const at::Tensor& q) {
  TORCH_CHECK(ends.device() == q.device() && ends.scalar_type() == at::kInt && ends.is_contiguous(),
              "FlashAttention: expected cu_seqlens as int32 on the card of its rows");
  note_access(ends.storage().data(), /*writes=*/false, "FlashAttention");
}

// [H, L, D] fp32 of the rows [T, H', D] of one sequence, each head of H' repeated for its group.
at::Tensor heads_of(const at::Tensor& rows, std::int64_t begin, std::int64_t end, std::int64_t heads) {
  return rows.slice(0, begin, end).to(at::kFloat).transpose(0, 1).repeat_interleave(heads / rows.size(1), 0);
}

// [H, L, L], minus infinity where a query doesn't see the key.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, double scale, Window window) {
  const at::Tensor query = at::arange(q.size(1)).unsqueeze(1), key = at::arange(k.size(1)).unsqueeze(0);
  at::Tensor hidden = at::zeros({q.size(1), k.size(1)}, at::kBool);
  if (window.right >= 0) hidden = hidden.logical_or(key > query + window.right);
  if (window.left >= 0) hidden = hidden.logical_or(key < query - window.left);
  return (at::matmul(q, k.transpose(1, 2)) * scale)
      .masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

template <typename Body>
void for_each_sequence(const at::Tensor& ends, const Body& body) {
  const auto* end = ends.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s + 1 < ends.numel(); ++s) {
    if (end[s] < end[s + 1]) body(end[s], end[s + 1]);
  }
}

// Their parameters are passed as the operators' schemas ask, some by value.
// NOLINTBEGIN(performance-unnecessary-value-param)
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& ends_q,
    const OptionalTensor&, c10::SymInt, c10::SymInt, double, bool causal, bool, std::optional<double> scale,
    OptionalSize left, OptionalSize right, const OptionalTensor&, const OptionalTensor&) {
  const Lock lock(mutex());
  ++report().operators["aten::_flash_attention_forward"];
  for (const auto* rows : {&query, &key, &value}) check_operand(*rows);
  TORCH_CHECK(ends_q.has_value(), "fake card: FlashAttention without cu_seqlens isn't imitated");
  check_ends(*ends_q, query);
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query), k = as_cpu(key), v = as_cpu(value);
  const std::int64_t heads = q.size(1);
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))));
  const Window window = window_of(causal, left, right);
  at::Tensor out = at::zeros(q.sizes(), q.options());
  at::Tensor lse = at::zeros({heads, q.size(0)}, at::kFloat);
  for_each_sequence(as_cpu(*ends_q), [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scores =
        scores_of(heads_of(q, begin, end, heads), heads_of(k, begin, end, heads), factor, window);
    const at::Tensor mixed = at::matmul(at::softmax(scores, -1), heads_of(v, begin, end, heads));
    out.slice(0, begin, end).copy_(mixed.transpose(0, 1));
    lse.slice(1, begin, end).copy_(at::logsumexp(scores, {-1}));
  });
  return {from_cpu(out), from_cpu(lse), from_cpu(at::zeros({2}, at::kUInt64)),
          from_cpu(at::zeros({}, at::kUInt64)), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& result, const at::Tensor& log_sum_exp, const at::Tensor& ends_q, const at::Tensor&,
    c10::SymInt, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale, OptionalSize left, OptionalSize right) {
  const Lock lock(mutex());
  ++report().operators["aten::_flash_attention_backward"];
  for (const auto* rows : {&gradient, &query, &key, &value, &result}) check_operand(*rows);
  check_ends(ends_q, query);
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query), k = as_cpu(key), v = as_cpu(value), out = as_cpu(result);
  const at::Tensor dout = as_cpu(gradient), lse = as_cpu(log_sum_exp);
  const std::int64_t heads = q.size(1), kv_heads = k.size(1), head_dim = q.size(2);
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));
  const Window window = window_of(causal, left, right);
  at::Tensor dq = at::zeros(q.sizes(), q.options());
  at::Tensor dk = at::zeros(k.sizes(), k.options()), dv = at::zeros(v.sizes(), v.options());
  for_each_sequence(as_cpu(ends_q), [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor hq = heads_of(q, begin, end, heads), hk = heads_of(k, begin, end, heads);
    const at::Tensor hv = heads_of(v, begin, end, heads), hdout = heads_of(dout, begin, end, heads);
    const at::Tensor p = (scores_of(hq, hk, factor, window) - lse.slice(1, begin, end).unsqueeze(-1)).exp();
    const at::Tensor delta = (hdout * heads_of(out, begin, end, heads)).sum(-1, true);
    const at::Tensor ds = p * (at::matmul(hdout, hv.transpose(1, 2)) - delta) * factor;
    // The heads of a group share their keys and values.
    const auto summed = [&](const at::Tensor& t) {
      return t.view({kv_heads, heads / kv_heads, end - begin, head_dim}).sum(1).transpose(0, 1);
    };
    dq.slice(0, begin, end).copy_(at::matmul(ds, hk).transpose(0, 1));
    dk.slice(0, begin, end).copy_(summed(at::matmul(ds.transpose(1, 2), hq)));
    dv.slice(0, begin, end).copy_(summed(at::matmul(p.transpose(1, 2), hdout)));
  });
  return {from_cpu(dq), from_cpu(dk), from_cpu(dv)};
}
// NOLINTEND(performance-unnecessary-value-param)

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_flash_attention_forward", &forward);
  library.impl("_flash_attention_backward", &backward);
}

}  // namespace
}  // namespace lorikeet::card
