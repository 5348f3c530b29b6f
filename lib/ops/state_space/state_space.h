#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

namespace lorikeet::ops {

/// How a row [x heads | B groups | C groups] of a Mamba 2 layer is divided. Head h reads B and C of group
/// h / (heads / groups).
struct StateSpaceLayout {
  std::int64_t heads;      ///< each with a state [state_dim, head_dim]
  std::int64_t head_dim;   ///< of x
  std::int64_t groups;     ///< divides heads
  std::int64_t state_dim;  ///< of B and C

  std::int64_t b_begin() const { return heads * head_dim; }
  std::int64_t c_begin() const { return b_begin() + groups * state_dim; }
  std::int64_t width() const { return c_begin() + groups * state_dim; }
  std::int64_t state_elements() const { return heads * state_dim * head_dim; }
};

/// The frozen numbers of each head, fp32 [heads].
struct StateSpaceNumbers {
  at::Tensor a_log;    ///< A = -exp(a_log)
  at::Tensor dt_bias;  ///< added to dt
  at::Tensor d;        ///< what of x passes by the state
};

/// Mamba 2's selective state space (Dao and Gu 2024, arXiv:2405.21060) over each sequence of a packed batch.
/// For head h of a token, with step = softplus(dt + dt_bias), its state S [state_dim, head_dim], which is 0
/// before a sequence, and its output are
///   S <- exp(step A) S + B (step x)^T;   out = S^T C + d x.
/// xbc: [T, layout.width()], floating, contiguous; dt: [T, heads], of the same dtype, elements of a row
/// dense, rows any distance apart. Returns [T, heads * head_dim] in that dtype, contiguous; all sums and
/// states are fp32 (fp64 for fp64). Computed in chunks of tokens, so that time and memory grow with a
/// sequence's length, not with its square. A sequence's result doesn't depend on what it is packed with.
/// `states`, unless it is null, has of each sequence the state before its first token, fp32 [heads,
/// state_dim, head_dim] or undefined for 0, and gets that behind its last one (decoding).
/// Throws Error on shapes that don't fit.
at::Tensor state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                       const StateSpaceLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states = nullptr);

/// The gradient of xbc, [T, layout.width()], contiguous, from dout [T, heads * head_dim] and forward's input,
/// of sequences whose states were 0; writes that of dt into ddt (of dt's shape and dtype, rows any distance
/// apart). Computes states again: forward keeps none.
at::Tensor state_space_backward(const at::Tensor& dout, const at::Tensor& xbc, const at::Tensor& dt,
                                const StateSpaceNumbers& numbers, const StateSpaceLayout& layout,
                                const Sequences& sequences, const at::Tensor& ddt);

namespace reference {

/// state_space by plain ATen calls, token by token as the rule says, differentiable in xbc and dt, on any
/// device and in fp64.
at::Tensor state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                       const StateSpaceLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states = nullptr);

}  // namespace reference
}  // namespace lorikeet::ops
