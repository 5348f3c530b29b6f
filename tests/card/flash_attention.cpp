// FlashAttention's two operators over packed sequences, and forward over a batch, by plain attention in fp32
// of each sequence. They refuse what the card's kernels refuse.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "card/alias.h"
#include "card/capability.h"
#include "card/plain_attention.h"
#include "card/report.h"
#include "card/streams.h"
#include "card/traffic.h"

namespace lorikeet::card {
namespace {

using OptionalSize = std::optional<c10::SymInt>;
using OptionalTensor = std::optional<at::Tensor>;

Window window_of(bool causal, const OptionalSize& left, const OptionalSize& right) {
  const auto limit = [](const OptionalSize& side) { return side ? side->expect_int() : -1; };
  return {limit(left), causal ? 0 : limit(right)};
}

void check_operand(const at::Tensor& rows) {
  TORCH_CHECK(capability() >= 80, "FlashAttention only supports Ampere GPUs or newer.");
  TORCH_CHECK(rows.is_cuda() && at::isReducedFloatingType(rows.scalar_type()),
              "FlashAttention only supports fp16 and bf16 data type");
  TORCH_CHECK(rows.stride(-1) == 1, "FlashAttention: expected heads dense in their last dimension");
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

// Their parameters are passed as the operators' schemas ask, some by value.
// NOLINTBEGIN(performance-unnecessary-value-param)
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& ends_q,
    const OptionalTensor&, c10::SymInt, c10::SymInt, double, bool causal, bool, std::optional<double> scale,
    OptionalSize left, OptionalSize right, const OptionalTensor&, const OptionalTensor&) {
  const Lock lock(mutex());
  count_operator("aten::_flash_attention_forward");
  const LaunchTraffic traffic("aten::_flash_attention_forward");
  for (const auto* rows : {&query, &key, &value}) {
    check_operand(*rows);
    TORCH_CHECK(
        rows->dim() == (ends_q ? 3 : 4),
        "FlashAttention: expected [T, heads, head_dim] with cu_seqlens, [B, L, heads, head_dim] without");
  }
  if (ends_q) check_ends(*ends_q, query);
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query), k = as_cpu(key), v = as_cpu(value);
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  const Window window = window_of(causal, left, right);
  at::Tensor out = at::zeros(q.sizes(), q.options()), lse;
  if (ends_q) {
    lse = at::zeros({q.size(1), q.size(0)}, at::kFloat);
    for_each_sequence(as_cpu(*ends_q), [&](std::int64_t begin, std::int64_t end) {
      const auto [mixed, sums] = plain_forward(q.slice(0, begin, end), k.slice(0, begin, end),
                                               v.slice(0, begin, end), factor, window);
      out.slice(0, begin, end).copy_(mixed);
      lse.slice(1, begin, end).copy_(sums);
    });
  } else {
    lse = at::zeros({q.size(0), q.size(2), q.size(1)}, at::kFloat);
    for (std::int64_t b = 0; b < q.size(0); ++b) {
      const auto [mixed, sums] = plain_forward(q[b], k[b], v[b], factor, window);
      out[b].copy_(mixed);
      lse[b].copy_(sums);
    }
  }
  return {from_cpu(out), from_cpu(lse), from_cpu(at::zeros({2}, at::kUInt64)),
          from_cpu(at::zeros({}, at::kUInt64)), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& result, const at::Tensor& log_sum_exp, const at::Tensor& ends_q, const at::Tensor&,
    c10::SymInt, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale, OptionalSize left, OptionalSize right) {
  const Lock lock(mutex());
  count_operator("aten::_flash_attention_backward");
  const LaunchTraffic traffic("aten::_flash_attention_backward");
  for (const auto* rows : {&gradient, &query, &key, &value, &result}) check_operand(*rows);
  TORCH_CHECK(query.dim() == 3, "fake card: FlashAttention's backward over a batch isn't imitated");
  check_ends(ends_q, query);
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query), k = as_cpu(key), v = as_cpu(value), out = as_cpu(result);
  const at::Tensor dout = as_cpu(gradient), lse = as_cpu(log_sum_exp);
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))));
  const Window window = window_of(causal, left, right);
  at::Tensor dq = at::zeros(q.sizes(), q.options());
  at::Tensor dk = at::zeros(k.sizes(), k.options()), dv = at::zeros(v.sizes(), v.options());
  for_each_sequence(as_cpu(ends_q), [&](std::int64_t begin, std::int64_t end) {
    const auto part = [&](const at::Tensor& rows) { return rows.slice(0, begin, end); };
    const auto gradients = plain_backward(part(dout), part(q), part(k), part(v), part(out),
                                          lse.slice(1, begin, end), factor, window);
    part(dq).copy_(gradients.q);
    part(dk).copy_(gradients.k);
    part(dv).copy_(gradients.v);
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
