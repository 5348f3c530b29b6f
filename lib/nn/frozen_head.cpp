#include "nn/frozen_head.h"

#include <ATen/ATen.h>

#include "ops/dtype.h"
#include "ops/lora/dora.h"
#include "ops/lora/lora_linear.h"

namespace lorikeet::nn {

at::Tensor FrozenHead::logits(const at::Tensor& hidden, const UnitLoan& weights) const {
  const ops::FrozenMatrix table = this->table(weights);
  at::Tensor logits = ops::lora_linear(hidden, table, {}, adapters(), std::nullopt);
  if (const auto dora = this->dora(table)) logits = ops::scale_columns(logits, dora->factors(), {});
  logits = logits.to(ops::to_torch(logits_dtype_));
  if (options_.scale != 1) logits = logits * options_.scale;
  if (options_.soft_cap != 0) logits = at::tanh(logits / options_.soft_cap) * options_.soft_cap;
  return logits;
}

ops::CrossEntropy FrozenHead::loss(const at::Tensor& hidden, const at::Tensor& labels,
                                   const UnitLoan& weights, double loss_scale, const ForwardContext& context,
                                   bool hidden_gradient) const {
  ops::CrossEntropyOptions options = options_;
  options.dropout = dropout(context);
  const ops::FrozenMatrix table = this->table(weights);
  options.dora = dora(table);
  return ops::linear_cross_entropy(hidden, table.dense(ops::to_torch(compute_)), adapters(), labels,
                                   loss_scale, options, hidden_gradient, table_gradient());
}

at::Tensor FrozenHead::token_nll(const at::Tensor& hidden, const at::Tensor& labels,
                                 const UnitLoan& weights) const {
  const ops::FrozenMatrix table = this->table(weights);
  ops::CrossEntropyOptions options = options_;
  options.dora = dora(table);
  return ops::token_nll(hidden, table.dense(ops::to_torch(compute_)), adapters(), labels, options);
}

}  // namespace lorikeet::nn
