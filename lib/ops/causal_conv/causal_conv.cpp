#include "ops/causal_conv/causal_conv.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/reference_backward.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "causal_conv";
constexpr std::int64_t kMostTaps = 8;

void check_input(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && (x.size(1) < 2 || x.stride(1) == 1),
               kOp, "a floating matrix [tokens, channels] with dense rows", x);
  check_tensor(weight.defined() && weight.dim() == 2 && weight.size(0) == x.size(1) && weight.size(1) > 0 &&
                   weight.size(1) <= kMostTaps,
               kOp, "a weight [channels, taps] of at most 8 taps", weight);
  check(!sequences.cu_seqlens.empty() && sequences.cu_seqlens.back() == x.size(0), kOp,
        "sequences that end with the rows", [&] { return describe(x); });
}

}  // namespace

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before) {
  check_input(x, weight, sequences);
  check(!before.defined() || (before.dim() == 3 && before.size(0) + 1 == std::ssize(sequences.cu_seqlens) &&
                              before.size(1) + 1 == weight.size(1) && before.size(2) == x.size(1)),
        kOp, "rows before each sequence, [sequences, taps - 1, channels]", [&] { return describe(before); });
  return reference::causal_conv(x, weight, sequences, before);
}

void causal_conv_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                          const Sequences& sequences, const at::Tensor& dx) {
  check_input(x, weight, sequences);
  check_tensor(dy.sizes() == x.sizes() && dy.is_contiguous(), kOp, "a dense gradient of the result", dy);
  check_tensor(dx.sizes() == x.sizes() && dx.scalar_type() == x.scalar_type(), kOp,
               "a matrix for the input's gradient", dx);
  dx.copy_(reference_backward(
      [&](const at::Tensor& leaf) { return reference::causal_conv(leaf, weight, sequences); }, x, dy));
}

}  // namespace lorikeet::ops
