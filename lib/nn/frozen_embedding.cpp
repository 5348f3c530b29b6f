#include "nn/frozen_embedding.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include "nn/batch.h"
#include "ops/embedding/embedding.h"

namespace lorikeet::nn {

at::Tensor FrozenEmbedding::forward(const Batch& batch, const UnitLoan& weights, EmbeddingKept* kept) const {
  at::Tensor rows = lookup(batch.tokens, table_.of(weights), compute_, kept);
  multiply_by_scale(rows);
  return rows;
}

void FrozenEmbedding::backward(const at::Tensor& dy, const Batch& batch, const EmbeddingKept& kept) const {
  if (scale_ == 1) return lookup_backward(dy, batch.tokens, kept);
  at::Tensor scaled = dy.clone();
  multiply_by_scale(scaled);
  lookup_backward(scaled, batch.tokens, kept);
}

at::Tensor FrozenEmbedding::lookup(const at::Tensor& ids, const ops::FrozenMatrix& table, DType out,
                                   EmbeddingKept* /*kept*/) const {
  return ops::embedding(ids, table, out);
}

void FrozenEmbedding::lookup_backward(const at::Tensor& /*dy*/, const at::Tensor& /*ids*/,
                                      const EmbeddingKept& /*kept*/) const {}

void FrozenEmbedding::multiply_by_scale(at::Tensor& rows) const {
  if (scale_ == 1) return;
  // A tensor, since mul_ with a number rounds it to the tensor's dtype on a CPU.
  const at::Tensor scale = c10::scalar_to_tensor(scale_);
  rows.mul_(scale_rounded_ ? scale.to(rows.scalar_type()) : scale);
}

}  // namespace lorikeet::nn
