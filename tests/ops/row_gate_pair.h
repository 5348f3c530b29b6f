#pragma once

#include <ATen/ATen.h>

#include "ops/experts/routing.h"
#include "ops/row_gate/row_gate.h"
#include "support/as_autograd.h"

namespace lorikeet::test {

/// added + sigmoid(gate) * x as a function of rows [x | added | gate], as experts with a shared one compute
/// it and its gradient.
inline at::Tensor row_gate_pair(const at::Tensor& rows, Backward& backward) {
  const std::int64_t width = (rows.size(1) - 1) / 2;
  const at::Tensor x = rows.narrow(1, 0, width).contiguous(), y = rows.narrow(1, width, width).contiguous(),
                   gate = rows.slice(1, 2 * width).contiguous();
  ops::add_row_gate_(y, x, gate);
  backward = [=](const at::Tensor& dy) {
    const at::Tensor dx = ops::row_gate(dy, gate);
    return at::cat({dx, dy, ops::row_gate_backward(ops::row_products(dx, x), gate)}, 1);
  };
  return y;
}

/// The same by the reference.
inline at::Tensor row_gate_reference(const at::Tensor& rows) {
  const std::int64_t width = (rows.size(1) - 1) / 2;
  return rows.narrow(1, width, width) +
         ops::reference::row_gate(rows.narrow(1, 0, width), rows.slice(1, 2 * width));
}

}  // namespace lorikeet::test
