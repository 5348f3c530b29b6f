#include <ATen/ATen.h>

#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/wide.h"

namespace lorikeet::ops::reference {

at::Tensor token_nll(const at::Tensor& hidden, const at::Tensor& head,
                     const std::vector<LoraProjection>& head_lora, const at::Tensor& label_rows,
                     const at::Tensor& labels, const CrossEntropyOptions& options) {
  const auto wide = wide_type(hidden);
  const auto rows = hidden.index_select(0, label_rows).to(wide);
  auto logits = at::matmul(rows, head.to(wide).t());
  for (const auto& p : head_lora) {
    logits = logits + at::matmul(at::matmul(rows, p.a.to(wide).t()), p.b.to(wide).t()) * p.scale;
  }
  logits = logits * options.scale;
  if (options.soft_cap > 0) logits = at::tanh(logits / options.soft_cap) * options.soft_cap;
  return -at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
}

}  // namespace lorikeet::ops::reference
