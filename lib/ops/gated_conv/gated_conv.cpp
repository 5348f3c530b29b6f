#include "ops/gated_conv/gated_conv.h"

#include <ATen/ATen.h>

#include "ops/causal_conv/operands.h"
#include "ops/check.h"
#include "ops/gated_conv/cpu.h"
#include "ops/gated_conv/gated_conv_cuda.h"
#include "ops/reference_backward.h"
#include "ops/row_layout.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "gated_conv";

void check_input(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences) {
  check_tensor(weight.defined() && weight.dim() == 2 && weight.size(1) > 0 && weight.size(1) <= kMostTaps,
               kOp, "a weight [channels, taps] of at most 8 taps", weight);
  check_tensor(projected.defined() && projected.dim() == 2 && projected.is_floating_point() &&
                   projected.is_contiguous() && projected.size(1) == 3 * weight.size(0),
               kOp, "a dense floating matrix [tokens, 3 times the weight's channels]", projected);
  check_ends(kOp, projected, sequences);
}

}  // namespace

at::Tensor gated_conv(const at::Tensor& projected, const at::Tensor& weight, const Sequences& sequences,
                      const at::Tensor& before) {
  check_input(projected, weight, sequences);
  const std::int64_t channels = weight.size(0);
  check_before(kOp, before, projected, weight, sequences);
  const bool on_cpu = vector::has_fast_elements(projected);
  if (!on_cpu && !convolves_on_cuda(projected, weight, sequences))
    return reference::gated_conv(projected, weight, sequences, before);
  const at::Tensor y = at::empty({projected.size(0), channels}, projected.options());
  const at::Tensor dense = before.defined() ? before.contiguous() : before;
  if (on_cpu) {
    cpu::gated_conv(projected, taps_by_channels(weight), sequences, dense, y);
  } else {
    const at::Tensor first = aligned(dense);
    launch_on_device_of(projected, [&](void* stream) {
      launch_gated_conv(cuda_element(projected), convolution_on_device(projected, weight, sequences),
                        first.defined() ? first.const_data_ptr() : nullptr, y.mutable_data_ptr(), stream);
    });
  }
  return y;
}

at::Tensor gated_conv_backward(const at::Tensor& dy, const at::Tensor& projected, const at::Tensor& weight,
                               const Sequences& sequences, at::Tensor* y) {
  check_input(projected, weight, sequences);
  check_tensor(dy.dim() == 2 && dy.size(0) == projected.size(0) && dy.size(1) == weight.size(0) &&
                   dy.scalar_type() == projected.scalar_type() && dy.is_contiguous(),
               kOp, "a dense gradient of the result, of its type", dy);
  const bool on_cpu = vector::has_fast_elements(projected);
  if (!on_cpu && !(convolves_on_cuda(projected, weight, sequences) && rows_are_aligned(dy))) {
    if (y != nullptr) *y = reference::gated_conv(projected, weight, sequences);
    return reference_backward(
        [&](const at::Tensor& leaf) { return reference::gated_conv(leaf, weight, sequences); }, projected,
        dy);
  }
  at::Tensor gradient = at::empty_like(projected);
  const at::Tensor again = y != nullptr ? at::empty_like(dy) : at::Tensor();
  if (on_cpu) {
    cpu::gated_conv_backward(dy, projected, taps_by_channels(weight), sequences, gradient, again);
  } else {
    launch_on_device_of(projected, [&](void* stream) {
      launch_gated_conv_backward(cuda_element(projected), convolution_on_device(projected, weight, sequences),
                                 dy.const_data_ptr(), gradient.mutable_data_ptr(),
                                 again.defined() ? again.mutable_data_ptr() : nullptr, stream);
    });
  }
  if (y != nullptr) *y = again;
  return gradient;
}

}  // namespace lorikeet::ops
