#include <ATen/ATen.h>

#include "ops/activation/activation.h"
#include "ops/experts/routing.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor gated_experts(const at::Tensor& x, const at::Tensor& router, const at::Tensor& gate_up,
                         const at::Tensor& down, const RouterOptions& options,
                         const at::Tensor& choice_bias) {
  const at::ScalarType wide = wide_type(x);
  const at::Tensor logits = x.matmul(router.t()).to(wide);
  const bool sigmoid = options.scores == RouterScores::kSigmoid;
  const at::Tensor scores = sigmoid ? logits.sigmoid() : logits.softmax(1);
  const at::Tensor experts =
      std::get<1>((choice_bias.defined() ? scores + choice_bias : scores).topk(options.per_token, 1));
  at::Tensor weights = scores.gather(1, experts);
  if (options.normalized)
    weights = weights / (weights.sum(1, /*keepdim=*/true) + (sigmoid ? options.sum_eps : 0));
  weights = weights * options.scale;
  at::Tensor sum = at::zeros_like(x, x.options().dtype(wide));
  // Every expert computes every token; those that a token doesn't go to have a weight of zero.
  for (std::int64_t e = 0; e < router.size(0); ++e) {
    const at::Tensor weight = (weights * experts.eq(e)).sum(1, /*keepdim=*/true);
    const at::Tensor product = reference::gated_activation(x.matmul(gate_up[e].t()), Activation::kSilu);
    sum = sum + product.matmul(down[e].t()).to(wide) * weight;
  }
  return sum.to(x.scalar_type());
}

}  // namespace lorikeet::ops::reference
