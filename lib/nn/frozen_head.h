#pragma once

#include <memory>
#include <vector>

#include "nn/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"

namespace lorikeet::nn {

/// A head over a frozen weight; PEFT's head adds adapters to it by `adapters` and `anchor`.
class FrozenHead : public Head {
 public:
  FrozenHead(const HeadSpec& spec, std::shared_ptr<const ops::FrozenWeight> weight,
             const precision::Policy& policy)
      : weight_(std::move(weight)), options_{spec.soft_cap, spec.scale, 0}, logits_dtype_(policy.loss) {}

  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor loss_sum(const at::Tensor& hidden, double loss_scale,
                      const ForwardContext& context) const override;
  at::Tensor token_nll(const at::Tensor& hidden, const ForwardContext& context) const override;

 protected:
  /// The adapters on the head: none or one.
  virtual std::vector<ops::LoraProjection> adapters() const { return {}; }
  /// The leaf that keeps the graph alive where only the head is trained.
  virtual at::Tensor anchor() const { return {}; }

 private:
  std::shared_ptr<const ops::FrozenWeight> weight_;
  ops::CrossEntropyOptions options_;
  DType logits_dtype_;
};

}  // namespace lorikeet::nn
