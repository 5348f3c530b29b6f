#pragma once

#include <ATen/ATen.h>

#include <functional>

#include "support/as_autograd.h"
#include "support/catch.h"

namespace lorikeet::test {

/// An operator of a dense matrix x and a gate, whose backward writes x's gradient over dy and the gate's into
/// dgate.
struct GatedOperator {
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& gate)> forward;
  std::function<void(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gate,
                     const at::Tensor& dgate, at::Tensor* y)>
      backward;
};

/// It as a function of rows [x | gate]: the gate and its gradient are columns of wider rows. Checks that
/// backward gives the result once more and leaves what lies beside the gate's gradient.
inline Forward gated_pair(const GatedOperator& op) {
  return [=](const at::Tensor& rows, Backward& backward) {
    const std::int64_t width = rows.size(1) / 2;
    const at::Tensor x = rows.narrow(1, 0, width).contiguous(), gate = rows.slice(1, width);
    const at::Tensor y = op.forward(x, gate);
    backward = [=](const at::Tensor& dy) {
      // The gradient's rows are wider still.
      const at::Tensor wide = at::full({rows.size(0), 2 * width + 16}, 7, rows.options());
      const at::Tensor same = wide.clone(), dx = dy.clone(), other = dy.clone();
      at::Tensor again;
      op.backward(dx, x, gate, wide.narrow(1, width, width), &again);
      CHECK(at::equal(again.cpu(), y.cpu()));
      CHECK(at::equal(wide.narrow(1, 0, width).cpu(), same.narrow(1, 0, width).cpu()));
      CHECK(at::equal(wide.slice(1, 2 * width).cpu(), same.slice(1, 2 * width).cpu()));
      op.backward(other, x, gate, same.narrow(1, width, width), nullptr);
      CHECK(at::equal(other.cpu(), dx.cpu()));
      CHECK(at::equal(same.cpu(), wide.cpu()));
      return at::cat({dx, wide.narrow(1, width, width)}, 1);
    };
    return y;
  };
}

/// A reference of x and a gate as a function of rows [x | gate].
inline std::function<at::Tensor(const at::Tensor&)> of_rows(
    const std::function<at::Tensor(const at::Tensor& x, const at::Tensor& gate)>& reference) {
  return [=](const at::Tensor& rows) {
    const std::int64_t width = rows.size(1) / 2;
    return reference(rows.narrow(1, 0, width), rows.slice(1, width));
  };
}

}  // namespace lorikeet::test
