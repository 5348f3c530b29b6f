#include "ops/row_gate/row_gate.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/row_gate/cpu.h"
#include "ops/row_gate/row_gate_cuda.h"
#include "ops/row_layout.h"
#include "ops/vector.h"
#include "ops/wide.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "row_gate";

void check_input(const at::Tensor& x, const at::Tensor& gate) {
  check_tensor(x.defined() && x.dim() == 2 && x.is_floating_point() && x.is_contiguous(), kOp,
               "a dense floating matrix", x);
  check_tensor(gate.defined() && gate.dim() == 2 && gate.size(0) == x.size(0) && gate.size(1) == 1 &&
                   gate.scalar_type() == x.scalar_type() && gate.is_contiguous(),
               kOp, "a gate of one number for each of the input's rows, of its type", gate);
}

bool fits_on_cuda(const at::Tensor& x) {
  return has_cuda_elements(x) && is_aligned(x) && row_gate_kernel_fits(cuda_element(x), x.size(1));
}

void launch(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y, bool add) {
  launch_on_device_of(x, [&](void* stream) {
    launch_row_gate(
        cuda_element(x),
        {.rows = x.size(0), .width = x.size(1), .x = x.const_data_ptr(), .gate = gate.const_data_ptr()},
        y.mutable_data_ptr(), add, stream);
  });
}

}  // namespace

at::Tensor row_gate(const at::Tensor& x, const at::Tensor& gate) {
  check_input(x, gate);
  const bool on_cpu = vector::is_fast(x);
  if (!on_cpu && !fits_on_cuda(x)) return reference::row_gate(x, gate);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  if (on_cpu) {
    cpu::row_gate(x, gate, y);
  } else {
    launch(x, gate, y, /*add=*/false);
  }
  return y;
}

void add_row_gate_(const at::Tensor& y, const at::Tensor& x, const at::Tensor& gate) {
  check_input(x, gate);
  check_tensor(y.sizes() == x.sizes() && y.scalar_type() == x.scalar_type() && y.is_contiguous(), kOp,
               "a dense sum of the input's shape and type", y);
  if (vector::is_fast(x)) {
    cpu::add_row_gate(x, gate, y);
  } else if (fits_on_cuda(x) && is_aligned(y)) {
    launch(x, gate, y, /*add=*/true);
  } else {
    const at::ScalarType wide = wide_type(x);
    y.copy_(y.to(wide) + reference::row_gate(x.to(wide), gate.to(wide)));
  }
}

at::Tensor row_gate_backward(const at::Tensor& products, const at::Tensor& gate) {
  check_tensor(products.dim() == 1 && gate.dim() == 2 && gate.size(1) == 1 &&
                   products.size(0) == gate.size(0) && products.scalar_type() == wide_type(gate),
               kOp, "a product for each row, in the type of sums", products);
  return (products.unsqueeze(1) * (1 - gate.to(products.scalar_type()).sigmoid())).to(gate.scalar_type());
}

}  // namespace lorikeet::ops
