#include "ops/gated_delta/gated_delta.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/gated_delta/cpu.h"
#include "ops/gated_delta/cuda.h"
#include "ops/recurrent_states.h"
#include "ops/reference_backward.h"
#include "ops/vector.h"

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
  check_follow(kOp, qkv, sequences);
}

}  // namespace

at::Tensor gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                       const DeltaLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states) {
  check_input(qkv, gates, decay, layout, sequences);
  if (states != nullptr)
    check_states(kOp, *states, {layout.value_heads, layout.key_dim, layout.value_dim},
                 "states [value_heads, key_dim, value_dim]", sequences);
  if (vector::is_fast(qkv)) {
    at::Tensor out = at::empty({qkv.size(0), layout.value_heads * layout.value_dim}, qkv.options());
    cpu::gated_delta(qkv, gates, decay, layout, sequences, states, out);
    return out;
  }
  if (cuda::gated_delta_fits(qkv, layout))
    return cuda::gated_delta(qkv, gates, decay, layout, sequences, states);
  return reference::gated_delta(qkv, gates, decay, layout, sequences, states);
}

DeltaGradients gated_delta_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& gates,
                                    const DeltaDecay& decay, const DeltaLayout& layout,
                                    const Sequences& sequences) {
  check_input(qkv, gates, decay, layout, sequences);
  check_tensor(dout.defined() && dout.dim() == 2 && dout.size(0) == qkv.size(0) &&
                   dout.size(1) == layout.value_heads * layout.value_dim &&
                   dout.scalar_type() == qkv.scalar_type(),
               kOp, "a gradient of the result", dout);
  if (vector::is_fast(qkv)) {
    DeltaGradients gradients{at::empty_like(qkv), at::empty_like(gates)};
    cpu::gated_delta_backward(dout.contiguous(), qkv, gates, decay, layout, sequences, gradients);
    return gradients;
  }
  if (cuda::gated_delta_fits(qkv, layout))
    return cuda::gated_delta_backward(dout, qkv, gates, decay, layout, sequences);
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
