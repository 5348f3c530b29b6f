#include "ops/causal_conv/causal_conv.h"

#include <ATen/ATen.h>

#include "ops/causal_conv/causal_conv_cuda.h"
#include "ops/causal_conv/cpu.h"
#include "ops/check.h"
#include "ops/reference_backward.h"
#include "ops/row_layout.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "causal_conv";
constexpr std::int64_t kMostTaps = 8;

void check_input(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && rows_are_dense(x), kOp,
               "a floating matrix [tokens, channels] with dense rows", x);
  check_tensor(weight.defined() && weight.dim() == 2 && weight.size(0) == x.size(1) && weight.size(1) > 0 &&
                   weight.size(1) <= kMostTaps,
               kOp, "a weight [channels, taps] of at most 8 taps", weight);
  check(!sequences.cu_seqlens.empty() && sequences.cu_seqlens.back() == x.size(0), kOp,
        "sequences that end with the rows", [&] { return describe(x); });
}

// Whether our CUDA kernels take the rows and where they lie; others go through the reference.
bool fits_on_cuda(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences) {
  const at::Tensor& bounds = sequences.cu_seqlens_device;
  return has_cuda_elements(x) && causal_conv_kernel_fits(cuda_element(x), x.size(1), weight.size(1)) &&
         rows_are_aligned(x) && weight.is_contiguous() && is_aligned(weight) &&
         (weight.scalar_type() == at::kFloat || weight.scalar_type() == x.scalar_type()) &&
         bounds.defined() && bounds.scalar_type() == at::kInt && bounds.device() == x.device() &&
         bounds.is_contiguous() && bounds.numel() == std::ssize(sequences.cu_seqlens);
}

CausalConvOnDevice on_device(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences) {
  return {.rows = x.size(0),
          .channels = x.size(1),
          .sequences = std::ssize(sequences.cu_seqlens) - 1,
          .taps = weight.size(1),
          .bounds = sequences.cu_seqlens_device.const_data_ptr<std::int32_t>(),
          .x = x.const_data_ptr(),
          .x_row = x.stride(0),
          .weight = weight.const_data_ptr(),
          .is_fp32 = weight.scalar_type() == at::kFloat};
}

// As the CPU's kernels read it.
at::Tensor taps_by_channels(const at::Tensor& weight) { return weight.t().to(at::kFloat).contiguous(); }

}  // namespace

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& before) {
  check_input(x, weight, sequences);
  check(!before.defined() || (before.dim() == 3 && before.size(0) + 1 == std::ssize(sequences.cu_seqlens) &&
                              before.size(1) + 1 == weight.size(1) && before.size(2) == x.size(1) &&
                              before.scalar_type() == x.scalar_type()),
        kOp, "rows before each sequence, [sequences, taps - 1, channels], of the input's type",
        [&] { return describe(before); });
  const bool on_cpu = vector::has_fast_elements(x);
  if (!on_cpu && !fits_on_cuda(x, weight, sequences))
    return reference::causal_conv(x, weight, sequences, before);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  const at::Tensor dense = before.defined() ? before.contiguous() : before;
  if (on_cpu) {
    cpu::causal_conv(x, taps_by_channels(weight), sequences, dense, y);
  } else {
    const at::Tensor first = aligned(dense);
    launch_on_device_of(x, [&](void* stream) {
      launch_causal_conv(cuda_element(x), on_device(x, weight, sequences),
                         first.defined() ? first.const_data_ptr() : nullptr, y.mutable_data_ptr(), stream);
    });
  }
  return y;
}

void causal_conv_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                          const Sequences& sequences, const at::Tensor& dx) {
  check_input(x, weight, sequences);
  check_tensor(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type() && dy.is_contiguous(), kOp,
               "a dense gradient of the result, of its type", dy);
  check_tensor(dx.sizes() == x.sizes() && dx.scalar_type() == x.scalar_type(), kOp,
               "a matrix for the input's gradient", dx);
  if (vector::has_fast_elements(x) && has_dense_rows_like(dx, x)) {
    cpu::causal_conv_backward(dy, x, taps_by_channels(weight), sequences, dx);
  } else if (fits_on_cuda(x, weight, sequences) && has_dense_rows_like(dx, x) && rows_are_aligned(dx) &&
             rows_are_aligned(dy)) {
    launch_on_device_of(x, [&](void* stream) {
      launch_causal_conv_backward(cuda_element(x), on_device(x, weight, sequences), dy.const_data_ptr(),
                                  dx.mutable_data_ptr(), dx.stride(0), stream);
    });
  } else {
    dx.copy_(reference_backward(
        [&](const at::Tensor& leaf) { return reference::causal_conv(leaf, weight, sequences); }, x, dy));
  }
}

}  // namespace lorikeet::ops
