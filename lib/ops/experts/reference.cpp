#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "ops/activation/activation.h"
#include "ops/experts/routing.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {
namespace {

// [T, E]: 0 for the experts of a token's groups, -inf for the others. Group after group: a group is a token's
// where fewer than groups_per_token have a higher score.
at::Tensor outside_groups(const at::Tensor& choice, const RouterOptions& options) {
  std::vector<at::Tensor> scores, added;
  for (const at::Tensor& group : choice.chunk(options.groups, 1)) {
    const at::Tensor sorted = std::get<0>(group.sort(1, /*descending=*/true));
    scores.push_back(sorted.narrow(1, 0, options.group_top).sum(1));
  }
  const at::Tensor all = at::stack(scores, 1);
  for (const at::Tensor& score : scores) {
    const at::Tensor outside =
        all.gt(score.unsqueeze(1)).sum(1, /*keepdim=*/true).ge(options.groups_per_token);
    added.push_back(at::zeros_like(score.unsqueeze(1))
                        .masked_fill(outside, -std::numeric_limits<double>::infinity())
                        .expand({choice.size(0), choice.size(1) / options.groups}));
  }
  return at::cat(added, 1);
}

}  // namespace

at::Tensor gated_experts(const at::Tensor& x, const at::Tensor& router, const at::Tensor& gate_up,
                         const at::Tensor& down, const RouterOptions& options,
                         const at::Tensor& choice_bias) {
  const at::ScalarType wide = wide_type(x);
  const at::Tensor logits = x.matmul(router.t()).to(wide);
  const bool sigmoid = options.scores == RouterScores::kSigmoid;
  const at::Tensor scores = sigmoid ? logits.sigmoid() : logits.softmax(1);
  const at::Tensor choice = choice_bias.defined() ? scores + choice_bias : scores;
  const at::Tensor experts =
      std::get<1>((choice + outside_groups(choice.detach(), options)).topk(options.per_token, 1));
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
