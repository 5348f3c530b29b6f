// The two operators of ATen's memory-efficient attention over packed sequences, by plain attention in fp32 of
// each sequence. They refuse what the card's kernels refuse, and keep the statistics as these do: [S, H, the
// longest sequence rounded up to 32], infinite behind a sequence's end in its last 32 and not written after
// that.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
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

constexpr std::int64_t kCausal = 1;  // sdp::CustomMaskType::CausalFromTopLeft
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t padded(std::int64_t length) { return (length + 31) / 32 * 32; }

Window window_of(std::int64_t mask, std::optional<std::int64_t> window) {
  TORCH_CHECK(mask == 0 || mask == kCausal, "fake card: efficient attention: mask type ", mask);
  TORCH_CHECK(!window || mask == kCausal,
              "efficient attention: LocalAttention only supported in causal mode");
  return {window ? *window - 1 : -1, mask == kCausal ? 0 : -1};
}

void check_operand(const at::Tensor& rows, const at::Tensor& q) {
  const auto dtype = rows.scalar_type();
  TORCH_CHECK(
      rows.is_cuda() && dtype == q.scalar_type() &&
          (dtype == at::kFloat || dtype == at::kHalf || (dtype == at::kBFloat16 && capability() >= 80)),
      "efficient attention: no kernel found to launch for ", dtype, " on sm", capability());
  TORCH_CHECK(rows.dim() == 4 && rows.size(0) == 1 && rows.sizes() == q.sizes() && rows.stride(-1) == 1,
              "efficient attention: expected [1, T, heads, head_dim], alike and dense in the last dimension");
  const std::int64_t aligned = 16 / rows.element_size();
  TORCH_CHECK(rows.size(-1) % aligned == 0 && rows.stride(2) % aligned == 0 &&
                  rows.stride(1) % aligned == 0 &&
                  reinterpret_cast<std::uintptr_t>(rows.const_data_ptr()) % 16 == 0,
              "efficient attention: expected rows of heads aligned to 16 bytes");
  note_access(rows.storage().data(), /*writes=*/false, "efficient attention");
}

void check_ends(const OptionalTensor& ends, const at::Tensor& q, const OptionalSize& longest) {
  TORCH_CHECK(ends && longest, "fake card: efficient attention without cu_seqlens isn't imitated");
  TORCH_CHECK(ends->device() == q.device() && ends->scalar_type() == at::kInt && ends->is_contiguous(),
              "efficient attention: expected cu_seqlens as int32 on the card of its rows");
  TORCH_CHECK(longest->expect_int() > 0 && longest->expect_int() <= q.size(1),
              "Invalid max_seqlen: ", *longest);
  note_access(ends->storage().data(), /*writes=*/false, "efficient attention");
}

// Their parameters are passed as the operators' schemas ask, some by value.
// NOLINTBEGIN(performance-unnecessary-value-param)
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt> forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& bias,
    const OptionalTensor& ends_q, const OptionalTensor& ends_k, OptionalSize longest_q,
    OptionalSize longest_k, double, std::int64_t mask, bool with_lse, std::optional<double> scale,
    const OptionalTensor&, std::optional<std::int64_t> window_size) {
  const Lock lock(mutex());
  count_operator("aten::_efficient_attention_forward");
  const LaunchTraffic traffic("aten::_efficient_attention_forward");
  for (const auto* rows : {&query, &key, &value}) check_operand(*rows, query);
  TORCH_CHECK(!bias, "fake card: efficient attention with a bias isn't imitated");
  check_ends(ends_q, query, longest_q);
  check_ends(ends_k, query, longest_k);
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query)[0], k = as_cpu(key)[0], v = as_cpu(value)[0];
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))));
  const Window window = window_of(mask, window_size);
  const std::int64_t longest = longest_q->expect_int();
  at::Tensor out = at::zeros(query.sizes(), q.options());
  at::Tensor lse =
      at::full({ends_q->numel() - 1, q.size(1), with_lse ? padded(longest) : 0}, std::nan(""), at::kFloat);
  const at::Tensor ends = as_cpu(*ends_q);
  const auto* end = ends.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s < lse.size(0); ++s) {
    const std::int64_t length = end[s + 1] - end[s];
    TORCH_CHECK(length <= longest, "fake card: efficient attention: a sequence of ", length, " tokens, told ",
                longest);
    if (length == 0) continue;
    const auto part = [&](const at::Tensor& rows) { return rows.slice(0, end[s], end[s + 1]); };
    const auto [mixed, sums] = plain_forward(part(q), part(k), part(v), factor, window);
    part(out[0]).copy_(mixed);
    if (!with_lse) continue;
    lse[s].slice(1, 0, padded(length)).fill_(kInfinity);
    lse[s].slice(1, 0, length).copy_(sums);
  }
  const auto state = [] { return from_cpu(at::zeros({}, at::kLong)); };
  return {from_cpu(out), from_cpu(lse), state(), state(), *longest_q, *longest_k};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const OptionalTensor&, const at::Tensor& result, const OptionalTensor& ends_q,
    const OptionalTensor& ends_k, c10::SymInt longest_q, c10::SymInt longest_k, const at::Tensor& log_sum_exp,
    double, const at::Tensor&, const at::Tensor&, std::int64_t mask, bool, std::optional<double> scale,
    std::optional<std::int64_t>, std::optional<std::int64_t> window_size, bool) {
  const Lock lock(mutex());
  count_operator("aten::_efficient_attention_backward");
  const LaunchTraffic traffic("aten::_efficient_attention_backward");
  for (const auto* rows : {&gradient, &query, &key, &value, &result}) check_operand(*rows, query);
  check_ends(ends_q, query, longest_q);
  check_ends(ends_k, query, longest_k);
  note_access(log_sum_exp.storage().data(), /*writes=*/false, "efficient attention");
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query)[0], k = as_cpu(key)[0], v = as_cpu(value)[0], out = as_cpu(result)[0];
  const at::Tensor dout = as_cpu(gradient)[0], lse = as_cpu(log_sum_exp), ends = as_cpu(*ends_q);
  TORCH_CHECK(lse.sizes() == at::IntArrayRef({ends.numel() - 1, q.size(1), padded(longest_q.expect_int())}) &&
                  lse.is_contiguous(),
              "efficient attention: expected the statistics as forward gave them, got ", lse.sizes());
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))));
  const Window window = window_of(mask, window_size);
  at::Tensor dq = at::zeros(query.sizes(), q.options()), dk = at::zeros_like(dq), dv = at::zeros_like(dq);
  const auto* end = ends.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s < lse.size(0); ++s) {
    const std::int64_t length = end[s + 1] - end[s];
    if (length == 0) continue;
    // The kernel computes whole blocks of queries: those behind the end vanish by an infinite denominator.
    TORCH_CHECK((lse[s].slice(1, length, padded(length)) == kInfinity).all().item<bool>(),
                "efficient attention: expected infinity in the statistics behind a sequence's end");
    const auto part = [&](const at::Tensor& rows) { return rows.slice(0, end[s], end[s + 1]); };
    const auto gradients = plain_backward(part(dout), part(q), part(k), part(v), part(out),
                                          lse[s].slice(1, 0, length), factor, window);
    part(dq[0]).copy_(gradients.q);
    part(dk[0]).copy_(gradients.k);
    part(dv[0]).copy_(gradients.v);
  }
  return {from_cpu(dq), from_cpu(dk), from_cpu(dv), at::Tensor()};
}
// NOLINTEND(performance-unnecessary-value-param)

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_efficient_attention_forward", &forward);
  library.impl("_efficient_attention_backward", &backward);
}

}  // namespace
}  // namespace lorikeet::card
