#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/lora/dora.h"
#include "ops/lora/lora_linear.h"

namespace lorikeet::ops {

struct CrossEntropyOptions {
  double soft_cap = 0;                      ///< > 0: logits become cap * tanh(logit / cap); 0: off
  double scale = 1;                         ///< multiplies the logits before the cap
  std::int64_t chunk_rows = 0;              ///< rows whose logits exist at one time; 0: chosen
  std::optional<LoraDropout> dropout = {};  ///< on the adapter's input
  std::optional<DoraMagnitude> dora = {};   ///< of all V columns: multiplies the product before `scale`
};

/// The loss of a head, and what flows back from it.
struct CrossEntropy {
  at::Tensor loss;    ///< scalar, fp32 (fp64 for fp64 hidden)
  at::Tensor hidden;  ///< [L, D]: loss_scale times the gradient; undefined unless it was asked for
};

/// The language model's head and its loss in one, over the hidden states that have a label:
///   sum over l of -log softmax(cap(scale * hidden[l] head^T))[labels[l]]
/// not averaged, and its gradient at once, chunk by chunk of rows, while the chunk's logits exist: [L, V]
/// never does.
/// hidden: [L, D]; head: [V, D] of hidden's dtype; head_lora: empty or one projection of all V columns;
/// labels: int64 [L] in [0, V), where V may exceed the tokenizer's vocabulary. L may be 0. The gradients are
/// loss_scale times the sum's: give one over the step's
/// label count (times a gradient scaler's factor). The adapter's are added to its grad_a and grad_b, DoRA's
/// to its gradient, the head's, where head_gradient is defined, to that: [V, D] in fp32 (fp64 for fp64
/// hidden) or, rounded at each addition, in 16 bits. Throws Error on shapes, dtypes or options that don't
/// fit, and on a CPU on labels out of range; a GPU, which nobody waits for, makes their terms and what
/// follows from them NaN.
CrossEntropy linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& head,
                                  const std::vector<LoraProjection>& head_lora, const at::Tensor& labels,
                                  double loss_scale, const CrossEntropyOptions& options, bool hidden_gradient,
                                  const at::Tensor& head_gradient = {});

/// The single terms of that sum, fp32 [L] (fp64 for fp64 hidden).
at::Tensor token_nll(const at::Tensor& hidden, const at::Tensor& head,
                     const std::vector<LoraProjection>& head_lora, const at::Tensor& labels,
                     const CrossEntropyOptions& options);

namespace reference {

/// token_nll by plain ATen calls with all logits at once; differentiable in hidden, in the adapter's a and b
/// and in DoRA's magnitude, on any device and in fp64.
at::Tensor token_nll(const at::Tensor& hidden, const at::Tensor& head,
                     const std::vector<LoraProjection>& head_lora, const at::Tensor& labels,
                     const CrossEntropyOptions& options);

}  // namespace reference
}  // namespace lorikeet::ops
