#include "ops/causal_conv/causal_conv.h"

#include <ATen/ATen.h>

#include "ops/causal_conv/cpu.h"
#include "ops/causal_conv/operands.h"
#include "ops/check.h"
#include "ops/reference_backward.h"
#include "ops/row_layout.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "causal_conv";

void check_input(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                 const at::Tensor& bias) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && rows_are_dense(x), kOp,
               "a floating matrix [tokens, channels] with dense rows", x);
  check_tensor(weight.defined() && weight.dim() == 2 && weight.size(0) == x.size(1) && weight.size(1) > 0 &&
                   weight.size(1) <= kMostTaps,
               kOp, "a weight [channels, taps] of at most 8 taps", weight);
  check_tensor(!bias.defined() || (bias.dim() == 1 && bias.size(0) == x.size(1)), kOp, "a bias [channels]",
               bias);
  check_ends(kOp, x, sequences);
}

// A bias as the CPU's kernels read it.
at::Tensor wide(const at::Tensor& bias) { return bias.defined() ? bias.to(at::kFloat).contiguous() : bias; }

}  // namespace

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before, const at::Tensor& given_bias) {
  check_input(x, weight, sequences, given_bias);
  const at::Tensor bias = readable_beside(x, given_bias);
  check_before(kOp, before, x, weight, sequences);
  const bool on_cpu = vector::has_fast_elements(x);
  if (!on_cpu && !convolves_on_cuda(x, weight, sequences, bias))
    return reference::causal_conv(x, weight, sequences, before, bias);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  const at::Tensor dense = before.defined() ? before.contiguous() : before;
  if (on_cpu) {
    cpu::causal_conv(x, taps_by_channels(weight), sequences, dense, wide(bias), y);
  } else {
    const at::Tensor first = aligned(dense);
    launch_on_device_of(x, [&](void* stream) {
      launch_causal_conv(cuda_element(x), convolution_on_device(x, weight, sequences, bias),
                         first.defined() ? first.const_data_ptr() : nullptr, y.mutable_data_ptr(), stream);
    });
  }
  return y;
}

void causal_conv_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                          const Sequences& sequences, const at::Tensor& dx, const at::Tensor& given_bias) {
  check_input(x, weight, sequences, given_bias);
  const at::Tensor bias = readable_beside(x, given_bias);
  check_tensor(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type() && dy.is_contiguous(), kOp,
               "a dense gradient of the result, of its type", dy);
  check_tensor(dx.sizes() == x.sizes() && dx.scalar_type() == x.scalar_type(), kOp,
               "a matrix for the input's gradient", dx);
  if (vector::has_fast_elements(x) && has_dense_rows_like(dx, x)) {
    cpu::causal_conv_backward(dy, x, taps_by_channels(weight), sequences, wide(bias), dx);
  } else if (convolves_on_cuda(x, weight, sequences, bias) && has_dense_rows_like(dx, x) &&
             rows_are_aligned(dx) && rows_are_aligned(dy)) {
    launch_on_device_of(x, [&](void* stream) {
      launch_causal_conv_backward(cuda_element(x), convolution_on_device(x, weight, sequences, bias),
                                  dy.const_data_ptr(), dx.mutable_data_ptr(), dx.stride(0), stream);
    });
  } else {
    dx.copy_(reference_backward(
        [&](const at::Tensor& leaf) { return reference::causal_conv(leaf, weight, sequences, {}, bias); }, x,
        dy));
  }
}

}  // namespace lorikeet::ops
