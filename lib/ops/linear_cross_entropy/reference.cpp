#include <ATen/ATen.h>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor token_nll(const at::Tensor& hidden, const at::Tensor& head,
                     const std::vector<LoraProjection>& head_lora, const at::Tensor& labels,
                     const CrossEntropyOptions& options) {
  const auto wide = wide_type(hidden);
  const auto rows = hidden.to(wide);
  auto logits = at::matmul(rows, head.to(wide).t());
  auto adapted = rows;
  if (options.dropout) {
    // The mask times its scale: differentiable where apply_dropout isn't.
    adapted = rows * apply_dropout(at::ones_like(rows.detach()), *options.dropout);
  }
  for (const auto& p : head_lora) {
    logits = logits + at::matmul(at::matmul(adapted, p.a.to(wide).t()), p.b.to(wide).t()) * p.scale;
  }
  if (options.dora) logits = logits * options.dora->factors().to(wide);
  logits = logits * options.scale;
  if (options.soft_cap > 0) logits = at::tanh(logits / options.soft_cap) * options.soft_cap;
  return -at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
}

}  // namespace lorikeet::ops::reference
