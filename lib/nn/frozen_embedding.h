#pragma once

#include "nn/linear.h"

namespace lorikeet::nn {

/// An embedding over a frozen table; PEFT's embedding adds to it, or has a table of its own.
class FrozenEmbedding : public Embedding {
 public:
  FrozenEmbedding(const EmbeddingSpec& spec, const MatrixPlace& table, const precision::Policy& policy)
      : table_(table), compute_(policy.compute), scale_(spec.scale), scale_rounded_(spec.scale_rounded) {}

  at::Tensor forward(const Batch& batch, const UnitLoan& weights, EmbeddingKept* kept) const final;
  void backward(const at::Tensor& dy, const Batch& batch, const EmbeddingKept& kept) const final;
  bool learns() const override { return false; }

 protected:
  /// The rows of `ids` [T, D], before the scale, and the backward of that.
  virtual at::Tensor lookup(const at::Tensor& ids, const ops::FrozenMatrix& table, DType out,
                            EmbeddingKept* kept) const;
  virtual void lookup_backward(const at::Tensor& dy, const at::Tensor& ids, const EmbeddingKept& kept) const;

 private:
  void multiply_by_scale(at::Tensor& rows) const;  // in place

  MatrixPlace table_;
  DType compute_;
  double scale_;
  bool scale_rounded_;
};

}  // namespace lorikeet::nn
