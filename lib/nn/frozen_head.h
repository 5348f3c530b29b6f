#pragma once

#include <optional>
#include <vector>

#include "nn/linear.h"

namespace lorikeet::nn {

/// A head over a frozen table; PEFT's head adds an adapter to it by `adapters`, or has a table of its own.
class FrozenHead : public Head {
 public:
  FrozenHead(const HeadSpec& spec, const MatrixPlace& table, const precision::Policy& policy)
      : table_(table),
        options_{.soft_cap = spec.soft_cap, .scale = spec.scale},
        compute_(policy.compute),
        logits_dtype_(policy.loss) {}

  at::Tensor logits(const at::Tensor& hidden, const UnitLoan& weights) const override;
  ops::CrossEntropy loss(const at::Tensor& hidden, const at::Tensor& labels, const UnitLoan& weights,
                         double loss_scale, const ForwardContext& context,
                         bool hidden_gradient) const override;
  at::Tensor token_nll(const at::Tensor& hidden, const at::Tensor& labels,
                       const UnitLoan& weights) const override;
  bool learns() const override { return !adapters().empty() || table_gradient().defined(); }

 protected:
  /// The adapters on the head: none or one.
  virtual std::vector<ops::LoraProjection> adapters() const { return {}; }
  /// The dropout of its input.
  virtual std::optional<ops::LoraDropout> dropout(const ForwardContext& /*context*/) const {
    return std::nullopt;
  }
  /// DoRA's magnitudes of the table's rows, where the adapter has them.
  virtual std::optional<ops::DoraMagnitude> dora(const ops::FrozenMatrix& /*table*/) const {
    return std::nullopt;
  }
  /// The table, and where its gradient is added: undefined where it is frozen.
  virtual ops::FrozenMatrix table(const UnitLoan& weights) const { return table_.of(weights); }
  virtual at::Tensor table_gradient() const { return {}; }

 private:
  MatrixPlace table_;
  ops::CrossEntropyOptions options_;
  DType compute_, logits_dtype_;
};

}  // namespace lorikeet::nn
