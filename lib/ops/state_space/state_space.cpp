#include "ops/state_space/state_space.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/recurrent_states.h"
#include "ops/reference_backward.h"
#include "ops/row_layout.h"
#include "ops/state_space/cpu.h"
#include "ops/state_space/cuda.h"
#include "ops/vector.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "state_space";

void check_input(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                 const StateSpaceLayout& layout, const Sequences& sequences) {
  check(layout.groups > 0 && layout.heads % layout.groups == 0, kOp, "heads that are a multiple of groups",
        [&] { return std::to_string(layout.heads) + " and " + std::to_string(layout.groups); });
  check_tensor(xbc.defined() && xbc.dim() == 2 && xbc.size(1) == layout.width() && xbc.is_floating_point() &&
                   xbc.is_contiguous(),
               kOp, "a dense floating matrix [tokens, heads * head_dim + 2 groups * state_dim]", xbc);
  check_tensor(dt.defined() && dt.dim() == 2 && dt.size(0) == xbc.size(0) && dt.size(1) == layout.heads &&
                   dt.scalar_type() == xbc.scalar_type() && rows_are_dense(dt),
               kOp, "steps [tokens, heads] of xbc's type in dense rows", dt);
  for (const at::Tensor& of_heads : {numbers.a_log, numbers.dt_bias, numbers.d})
    check_tensor(of_heads.defined() && of_heads.numel() == layout.heads, kOp, "a number for each head",
                 of_heads);
  check_follow(kOp, xbc, sequences);
}

}  // namespace

at::Tensor state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                       const StateSpaceLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states) {
  check_input(xbc, dt, numbers, layout, sequences);
  if (states != nullptr)
    check_states(kOp, *states, {layout.heads, layout.state_dim, layout.head_dim},
                 "states [heads, state_dim, head_dim]", sequences);
  if (vector::is_fast(xbc)) {
    at::Tensor out = at::empty({xbc.size(0), layout.b_begin()}, xbc.options());
    cpu::state_space(xbc, dt, numbers, layout, sequences, states, out);
    return out;
  }
  if (cuda::state_space_fits(xbc, layout))
    return cuda::state_space(xbc, dt, numbers, layout, sequences, states);
  return reference::state_space(xbc, dt, numbers, layout, sequences, states);
}

at::Tensor state_space_backward(const at::Tensor& dout, const at::Tensor& xbc, const at::Tensor& dt,
                                const StateSpaceNumbers& numbers, const StateSpaceLayout& layout,
                                const Sequences& sequences, const at::Tensor& ddt) {
  check_input(xbc, dt, numbers, layout, sequences);
  check_tensor(dout.defined() && dout.dim() == 2 && dout.size(0) == xbc.size(0) &&
                   dout.size(1) == layout.b_begin() && dout.scalar_type() == xbc.scalar_type(),
               kOp, "a gradient [tokens, heads * head_dim] of xbc's type", dout);
  check_tensor(ddt.defined() && ddt.sizes() == dt.sizes() && ddt.scalar_type() == dt.scalar_type() &&
                   rows_are_dense(ddt),
               kOp, "a matrix for the steps' gradient, of their shape and type", ddt);
  if (vector::is_fast(xbc)) {
    at::Tensor dxbc = at::empty_like(xbc);
    cpu::state_space_backward(dout.contiguous(), xbc, dt, numbers, layout, sequences, dxbc, ddt);
    return dxbc;
  }
  if (cuda::state_space_fits(xbc, layout))
    return cuda::state_space_backward(dout, xbc, dt, numbers, layout, sequences, ddt);
  const std::int64_t width = layout.width();
  const at::Tensor both = reference_backward(
      [&](const at::Tensor& leaf) {
        return reference::state_space(leaf.narrow(1, 0, width), leaf.slice(1, width), numbers, layout,
                                      sequences);
      },
      at::cat({xbc, dt}, 1), dout);
  ddt.copy_(both.slice(1, width));
  return both.narrow(1, 0, width).contiguous();
}

}  // namespace lorikeet::ops
