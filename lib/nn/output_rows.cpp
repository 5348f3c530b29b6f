#include "nn/output_rows.h"

#include "ops/take_rows.h"

namespace lorikeet::nn {

Batch ids_of_rows(const Batch& batch, const at::Tensor& index) {
  Batch rows;
  rows.position_ids = ops::take_rows(batch.position_ids.unsqueeze(1), index).squeeze(1);
  rows.sample_ids = ops::take_rows(batch.sample_ids.unsqueeze(1), index).squeeze(1);
  return rows;
}

OutputRows output_rows(const Batch& batch, const at::Tensor& index) {
  return {.index = index, .batch = ids_of_rows(batch, index), .tokens = batch.size()};
}

at::Tensor read_rows(const at::Tensor& x, const ForwardContext& context) {
  return context.output_rows != nullptr ? ops::take_rows(x, context.output_rows->index) : x;
}

at::Tensor read_rows_backward(const at::Tensor& dy, const ForwardContext& context) {
  if (context.output_rows == nullptr) return dy;
  return ops::put_rows(dy, context.output_rows->index, context.output_rows->tokens);
}

ForwardContext behind_attention(const ForwardContext& context) {
  if (context.output_rows == nullptr) return context;
  return {.batch = context.output_rows->batch, .training = context.training, .step = context.step};
}

}  // namespace lorikeet::nn
