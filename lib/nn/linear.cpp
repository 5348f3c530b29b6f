#include "nn/linear.h"

#include "nn/frozen_head.h"
#include "ops/lora/lora_linear.h"

namespace lorikeet::nn {
namespace {

class FrozenGroup : public LinearGroup {
 public:
  FrozenGroup(const GroupSpec& spec, WeightUnit& unit, const precision::Policy& policy)
      : weights_(spec, unit, policy) {}

  at::Tensor forward(const at::Tensor& x, const ForwardContext& /*context*/) const override {
    return ops::frozen_linear(x, weights_.weight, weights_.bias());
  }

 private:
  GroupWeights weights_;
};

}  // namespace

std::int64_t GroupSpec::out_features() const {
  std::int64_t total = 0;
  for (const Projection& p : projections) total += p.out_features;
  return total;
}

GroupWeights::GroupWeights(const GroupSpec& spec, WeightUnit& unit, const precision::Policy& policy)
    : unit_(&unit) {
  std::vector<WeightSegment> weights, biases;
  for (const Projection& p : spec.projections) {
    weights.push_back({p.name + ".weight", {p.out_features, spec.in_features}, policy.base_storage});
    if (spec.bias) biases.push_back({p.name + ".bias", {p.out_features}, policy.base_storage});
  }
  const std::size_t first = unit.declare(std::move(weights));
  weight = std::make_shared<UnitWeight>(unit, first, spec.out_features(), spec.in_features, policy.compute);
  if (spec.bias) {
    bias_segment_ = unit.declare(std::move(biases));
    bias_size_ = spec.out_features();
  }
}

at::Tensor GroupWeights::bias() const {
  if (bias_size_ == 0) return {};
  return unit_->matrix(bias_segment_, 1, bias_size_).view({bias_size_});
}

std::shared_ptr<const ops::FrozenWeight> declare_matrix(const std::string& name, std::int64_t rows,
                                                        std::int64_t cols, WeightUnit& unit,
                                                        const precision::Policy& policy) {
  const std::size_t segment = unit.declare({{name, {rows, cols}, policy.base_storage}});
  return std::make_shared<UnitWeight>(unit, segment, rows, cols, policy.compute);
}

std::unique_ptr<LinearGroup> FrozenFactory::linear(const GroupSpec& spec, WeightUnit& unit) {
  return std::make_unique<FrozenGroup>(spec, unit, policy_);
}

std::unique_ptr<Head> FrozenFactory::head(const HeadSpec& spec, WeightUnit& unit) {
  return std::make_unique<FrozenHead>(
      spec, declare_matrix(spec.name + ".weight", spec.vocab_size, spec.hidden_size, unit, policy_), policy_);
}

std::unique_ptr<Head> FrozenFactory::tied_head(const HeadSpec& spec,
                                               std::shared_ptr<const ops::FrozenWeight> table) {
  return std::make_unique<FrozenHead>(spec, std::move(table), policy_);
}

}  // namespace lorikeet::nn
