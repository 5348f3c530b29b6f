#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

namespace lorikeet::ops {

/// How a row [q heads | k heads | v heads] of a gated delta net is divided. Value head h reads the key head
/// h / (value_heads / key_heads).
struct DeltaLayout {
  std::int64_t key_heads;    ///< query heads, and as many key heads; divides value_heads
  std::int64_t value_heads;  ///< each with a state [key_dim, value_dim]
  std::int64_t key_dim;      ///< of a query's or key's head
  std::int64_t value_dim;    ///< of a value's head

  std::int64_t k_begin() const { return key_heads * key_dim; }
  std::int64_t v_begin() const { return 2 * key_heads * key_dim; }
  std::int64_t width() const { return v_begin() + value_heads * value_dim; }
  std::int64_t state_elements() const { return value_heads * key_dim * value_dim; }
};

/// The frozen numbers of a layer that decide, with a token's own `a`, how much of a state is forgotten.
struct DeltaDecay {
  at::Tensor a_log;    ///< [value_heads], fp32
  at::Tensor dt_bias;  ///< [value_heads], fp32
};

/// The gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv:2412.06464) over each sequence of a packed
/// batch. With q and k normed to length 1 (x / sqrt(sum of squares + 1e-6)) and, for value head h of a token,
///   beta = sigmoid(b),   g = -exp(a_log) softplus(a + dt_bias),
/// its state S [key_dim, value_dim], which is 0 before a sequence, and its output are
///   S <- exp(g) S;   S <- S + k (beta (v - S^T k))^T;   out = S^T q / sqrt(key_dim).
/// qkv: [T, layout.width()], floating, contiguous; gates: [T, 2 value_heads] = [b | a], of the same dtype,
/// contiguous. Returns [T, value_heads * value_dim] in that dtype; all sums and states are fp32 (fp64 for
/// fp64). Computed in chunks of tokens by their WY form, so that time and memory grow with a sequence's
/// length, not with its square. A sequence's result doesn't depend on what it is packed with.
/// `states`, unless it is null, has of each sequence the state before its first token, fp32 [value_heads,
/// key_dim, value_dim] or undefined for 0, and gets that behind its last one (decoding).
/// Throws Error on shapes that don't fit.
at::Tensor gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                       const DeltaLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states = nullptr);

struct DeltaGradients {
  at::Tensor qkv;    ///< [T, layout.width()], contiguous
  at::Tensor gates;  ///< [T, 2 value_heads], contiguous
};

/// The gradients of qkv and gates, from dout [T, value_heads * value_dim] and forward's input, of sequences
/// whose states were 0. Computes states again: forward keeps none.
DeltaGradients gated_delta_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& gates,
                                    const DeltaDecay& decay, const DeltaLayout& layout,
                                    const Sequences& sequences);

namespace reference {

/// gated_delta by plain ATen calls, token by token as the rule says, differentiable in qkv and gates, on any
/// device and in fp64.
at::Tensor gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                       const DeltaLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states = nullptr);

}  // namespace reference
}  // namespace lorikeet::ops
