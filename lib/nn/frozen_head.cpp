#include "nn/frozen_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nn/batch.h"
#include "ops/dtype.h"
#include "ops/lora/lora_linear.h"

namespace lorikeet::nn {

at::Tensor FrozenHead::logits(const at::Tensor& hidden) const {
  const at::NoGradGuard no_grad;
  at::Tensor logits =
      ops::lora_linear(hidden, weight_, {}, adapters(), std::nullopt, {}).to(ops::to_torch(logits_dtype_));
  if (options_.scale != 1) logits = logits * options_.scale;
  if (options_.soft_cap != 0) logits = at::tanh(logits / options_.soft_cap) * options_.soft_cap;
  return logits;
}

at::Tensor FrozenHead::loss_sum(const at::Tensor& hidden, double loss_scale,
                                const ForwardContext& context) const {
  const Batch& batch = context.batch;
  return ops::linear_cross_entropy(hidden, weight_, adapters(), batch.label_rows, batch.labels, loss_scale,
                                   options_, anchor());
}

at::Tensor FrozenHead::token_nll(const at::Tensor& hidden, const ForwardContext& context) const {
  const at::NoGradGuard no_grad;
  return ops::token_nll(hidden, *weight_, adapters(), context.batch.label_rows, context.batch.labels,
                        options_);
}

}  // namespace lorikeet::nn
