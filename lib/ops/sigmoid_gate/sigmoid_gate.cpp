#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/reference_backward.h"
#include "ops/row_layout.h"
#include "ops/sigmoid_gate/cpu.h"
#include "ops/sigmoid_gate/sigmoid_gate_cuda.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "sigmoid_gate";

void check_input(const at::Tensor& x, const at::Tensor& gate) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && x.is_contiguous(), kOp,
               "a dense floating matrix", x);
  check_tensor(gate.defined() && gate.sizes() == x.sizes() && gate.scalar_type() == x.scalar_type(), kOp,
               "a gate of the input's shape and type", gate);
}

// Whether one of our CUDA kernels takes a matrix like x with these rows.
bool fits_on_cuda(const at::Tensor& rows, const at::Tensor& x) {
  return has_cuda_elements(x) && has_dense_rows_like(rows, x) && rows_are_aligned(rows) &&
         rows_are_aligned(x) && sigmoid_gate_kernel_fits(cuda_element(x), x.size(1));
}

SigmoidGateOnDevice on_device(const at::Tensor& x, const at::Tensor& gate) {
  return {.rows = x.size(0),
          .width = x.size(1),
          .x = x.const_data_ptr(),
          .gate = gate.const_data_ptr(),
          .gate_row = gate.stride(0)};
}

}  // namespace

at::Tensor sigmoid_gate(const at::Tensor& x, const at::Tensor& gate) {
  check_input(x, gate);
  const bool on_cpu = vector::has_fast_elements(x) && has_dense_rows_like(gate, x);
  if (!on_cpu && !fits_on_cuda(gate, x)) return reference::sigmoid_gate(x, gate);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  if (on_cpu) {
    cpu::sigmoid_gate(x, gate, y);
  } else {
    launch_on_device_of(x, [&](void* stream) {
      launch_sigmoid_gate(cuda_element(x), on_device(x, gate), y.mutable_data_ptr(), stream);
    });
  }
  return y;
}

void sigmoid_gate_backward_(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& dgate, at::Tensor* y) {
  check_input(x, gate);
  check_tensor(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type() && dy.is_contiguous(), kOp,
               "a dense gradient of the result, of its type", dy);
  check_tensor(dgate.sizes() == x.sizes(), kOp, "a matrix for the gate's gradient", dgate);
  const bool on_cpu =
      vector::has_fast_elements(x) && has_dense_rows_like(gate, x) && has_dense_rows_like(dgate, x);
  const bool on_cuda = fits_on_cuda(gate, x) && fits_on_cuda(dgate, x) && rows_are_aligned(dy);
  if (on_cpu || on_cuda) {
    if (y != nullptr) *y = at::empty(x.sizes(), x.options());
    if (on_cpu) {
      cpu::sigmoid_gate_backward(dy, x, gate, dgate, y != nullptr ? *y : at::Tensor());
      return;
    }
    launch_on_device_of(x, [&](void* stream) {
      launch_sigmoid_gate_backward(cuda_element(x), on_device(x, gate), dy.mutable_data_ptr(),
                                   dgate.mutable_data_ptr(), dgate.stride(0),
                                   y != nullptr ? y->mutable_data_ptr() : nullptr, stream);
    });
    return;
  }
  if (y != nullptr) *y = reference::sigmoid_gate(x, gate);
  const std::int64_t width = x.size(1);
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::sigmoid_gate(leaf.narrow(1, 0, width), leaf.slice(1, width));
      },
      at::cat({x, gate}, 1), dy);
  dy.copy_(both.narrow(1, 0, width));
  dgate.copy_(both.slice(1, width));
}

}  // namespace lorikeet::ops
