#include "ops/gated_delta/gated_delta.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/reference_backward.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "gated_delta";

void check_input(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                 const DeltaLayout& layout, const Sequences& sequences) {
  check(layout.key_heads > 0 && layout.value_heads % layout.key_heads == 0, kOp,
        "value heads that are a multiple of key heads",
        [&] { return std::to_string(layout.value_heads) + " and " + std::to_string(layout.key_heads); });
  check_tensor(qkv.defined() && qkv.dim() == 2 && qkv.size(1) == layout.width() && qkv.is_floating_point() &&
                   qkv.is_contiguous(),
               kOp, "a dense floating matrix [tokens, 2 key_heads * key_dim + value_heads * value_dim]", qkv);
  check_tensor(gates.defined() && gates.dim() == 2 && gates.size(0) == qkv.size(0) &&
                   gates.size(1) == 2 * layout.value_heads && gates.scalar_type() == qkv.scalar_type() &&
                   gates.is_contiguous(),
               kOp, "dense gates [tokens, 2 value_heads] of qkv's type", gates);
  for (const at::Tensor& numbers : {decay.a_log, decay.dt_bias})
    check_tensor(numbers.defined() && numbers.numel() == layout.value_heads, kOp,
                 "a number for each value head", numbers);
  check(!sequences.cu_seqlens.empty() && sequences.cu_seqlens.back() == qkv.size(0), kOp,
        "sequences that end with the rows", [&] { return describe(qkv); });
}

}  // namespace

at::Tensor gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                       const DeltaLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states) {
  check_input(qkv, gates, decay, layout, sequences);
  check(states == nullptr || std::ssize(*states) + 1 == std::ssize(sequences.cu_seqlens), kOp,
        "a state for each sequence", [&] { return std::to_string(states->size()); });
  return reference::gated_delta(qkv, gates, decay, layout, sequences, states);
}

DeltaGradients gated_delta_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& gates,
                                    const DeltaDecay& decay, const DeltaLayout& layout,
                                    const Sequences& sequences) {
  check_input(qkv, gates, decay, layout, sequences);
  check_tensor(
      dout.dim() == 2 && dout.size(0) == qkv.size(0) && dout.size(1) == layout.value_heads * layout.value_dim,
      kOp, "a gradient of the result", dout);
  const std::int64_t width = layout.width();
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::gated_delta(leaf.narrow(1, 0, width), leaf.slice(1, width), decay, layout,
                                      sequences);
      },
      at::cat({qkv, gates}, 1), dout);
  return {both.narrow(1, 0, width).contiguous(), both.slice(1, width).contiguous()};
}

}  // namespace lorikeet::ops
