#pragma once

#include <torch/csrc/autograd/autograd.h>

#include "ops/attention_cases.h"
#include "support/as_autograd.h"

// Attention and its reference, with the gradient of q, k and v.
namespace lorikeet::test {

struct Run {
  at::Tensor out, grad;
};

template <typename F>
Run run(const F& f, const at::Tensor& qkv, const at::Tensor& upstream) {
  const auto x = qkv.detach().clone().requires_grad_(true);
  const auto out = f(x);
  if (out.numel() == 0) return {out, x};
  return {out, torch::autograd::grad({out}, {x}, {upstream})[0]};
}

inline Run run_fused(const AttentionCase& c, const at::Tensor& qkv, const at::Tensor& upstream,
                     const at::Tensor& sinks = {}) {
  const auto sequences = sequences_of(c.lengths);
  const auto pair = [&](const at::Tensor& x) {
    return as_autograd(x, [&](const at::Tensor& in, Backward& backward) {
      ops::AttentionStatistics statistics;
      const auto out = ops::attention(in, c.layout, sequences, c.options, &statistics, sinks);
      backward = [=](const at::Tensor& dy) {
        return ops::pack(ops::attention_backward(dy, in, out, statistics, c.layout, sequences, c.options));
      };
      return out;
    });
  };
  return run(pair, qkv, upstream);
}

/// In fp64.
inline Run run_reference(const AttentionCase& c, const at::Tensor& qkv, const at::Tensor& upstream,
                         const at::Tensor& sinks = {}) {
  const auto reference = [&](const at::Tensor& x) {
    return ops::reference::attention(x, c.layout, sequences_of(c.lengths), c.options, sinks);
  };
  return run(reference, qkv.to(at::kDouble), upstream.to(at::kDouble));
}

}  // namespace lorikeet::test
