// cuDNN's attention over a batch of sequences, both ways, by plain attention in fp32 of each sequence.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <tuple>

#include "card/alias.h"
#include "card/capability.h"
#include "card/plain_attention.h"
#include "card/report.h"
#include "card/streams.h"
#include "card/traffic.h"

namespace lorikeet::card {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                           at::Tensor, at::Tensor, at::Tensor>;

void check_operand(const at::Tensor& batch) {
  TORCH_CHECK(capability() >= 80, "cuDNN's attention: expected Ampere or newer");
  TORCH_CHECK(batch.is_cuda() && at::isReducedFloatingType(batch.scalar_type()) && batch.dim() == 4,
              "cuDNN's attention: expected fp16 or bf16 [B, heads, L, head_dim] on a card");
  TORCH_CHECK(
      batch.stride(-1) == 1 && batch.size(-1) % 8 == 0 && batch.size(-1) <= 128,
      "cuDNN's attention: expected heads dense in their last dimension, of at most 128 and a multiple of 8");
  TORCH_CHECK(reinterpret_cast<std::uintptr_t>(batch.const_data_ptr()) % 16 == 0,
              "cuDNN's attention: expected rows aligned to 16 bytes");
  note_access(batch.storage().data(), /*writes=*/false, "cuDNN's attention");
}

Window window_of(bool causal) { return {-1, causal ? 0 : -1}; }

// One sequence of a batch as plain attention has it: [L, heads, D].
at::Tensor sequence(const at::Tensor& batch, std::int64_t b) { return batch[b].transpose(0, 1); }

// Dense, but with tokens before heads.
at::Tensor like_rows(const at::Tensor& batch) {
  return at::zeros({batch.size(0), batch.size(2), batch.size(1), batch.size(3)}, batch.options())
      .transpose(1, 2);
}

// Their parameters are passed as the operators' schemas ask, some by value.
// NOLINTBEGIN(performance-unnecessary-value-param)
Forward forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const OptionalTensor& bias, const OptionalTensor& ends_q, const OptionalTensor& ends_k,
                c10::SymInt most_q, c10::SymInt most_k, bool, double dropout, bool causal, bool,
                std::optional<double> scale) {
  const Lock lock(mutex());
  count_operator("aten::_cudnn_attention_forward");
  const LaunchTraffic traffic("aten::_cudnn_attention_forward");
  for (const auto* batch : {&query, &key, &value}) check_operand(*batch);
  TORCH_CHECK(!bias && !ends_q && !ends_k && dropout == 0 && scale && most_q == query.size(2) &&
                  most_k == key.size(2),
              "fake card: of cuDNN's attention only batches of whole sequences are imitated");
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query), k = as_cpu(key), v = as_cpu(value);
  at::Tensor out = like_rows(q), lse = at::zeros({q.size(0), q.size(1), q.size(2), 1}, at::kFloat);
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    const auto [mixed, sums] =
        plain_forward(sequence(q, b), sequence(k, b), sequence(v, b), *scale, window_of(causal));
    sequence(out, b).copy_(mixed);
    lse[b].squeeze(-1).copy_(sums);
  }
  const auto scalar = [] { return from_cpu(at::zeros({}, at::kLong)); };
  return {from_cpu(out), from_cpu(lse), {}, {}, most_q, most_k, scalar(), scalar(), {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& result, const at::Tensor& log_sum_exp, const at::Tensor& seed, const at::Tensor& offset,
    const at::Tensor& bias, const at::Tensor& ends_q, const at::Tensor& ends_k, c10::SymInt most_q,
    c10::SymInt most_k, double dropout, bool causal, std::optional<double> scale) {
  const Lock lock(mutex());
  count_operator("aten::_cudnn_attention_backward");
  const LaunchTraffic traffic("aten::_cudnn_attention_backward");
  for (const auto* batch : {&gradient, &query, &key, &value, &result}) check_operand(*batch);
  TORCH_CHECK(seed.is_cuda() && offset.is_cuda(), "cuDNN's attention: expected forward's random state");
  TORCH_CHECK(!bias.defined() && !ends_q.defined() && !ends_k.defined() && dropout == 0 && scale &&
                  most_q == query.size(2) && most_k == key.size(2),
              "fake card: of cuDNN's attention only batches of whole sequences are imitated");
  const OnCard on(query.get_device());
  const at::Tensor q = as_cpu(query), k = as_cpu(key), v = as_cpu(value), out = as_cpu(result);
  const at::Tensor dout = as_cpu(gradient), lse = as_cpu(log_sum_exp);
  at::Tensor dq = like_rows(q), dk = like_rows(k), dv = like_rows(v);
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    const auto gradients = plain_backward(sequence(dout, b), sequence(q, b), sequence(k, b), sequence(v, b),
                                          sequence(out, b), lse[b].squeeze(-1), *scale, window_of(causal));
    sequence(dq, b).copy_(gradients.q);
    sequence(dk, b).copy_(gradients.k);
    sequence(dv, b).copy_(gradients.v);
  }
  return {from_cpu(dq), from_cpu(dk), from_cpu(dv)};
}
// NOLINTEND(performance-unnecessary-value-param)

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_cudnn_attention_forward", &forward);
  library.impl("_cudnn_attention_backward", &backward);
}

}  // namespace
}  // namespace lorikeet::card
