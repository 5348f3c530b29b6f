#pragma once

#include "ops/state_space/state_space.h"

namespace lorikeet::ops::cpu {

/// As ops::state_space for fp32 or bf16 xbc, into `out`, dense.
void state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                 const StateSpaceLayout& layout, const Sequences& sequences, std::vector<at::Tensor>* states,
                 at::Tensor& out);

/// As ops::state_space_backward for such xbc; dout dense, `dxbc` like xbc, elements of ddt's rows dense.
void state_space_backward(const at::Tensor& dout, const at::Tensor& xbc, const at::Tensor& dt,
                          const StateSpaceNumbers& numbers, const StateSpaceLayout& layout,
                          const Sequences& sequences, at::Tensor& dxbc, const at::Tensor& ddt);

}  // namespace lorikeet::ops::cpu
