#include "nn/linear.h"

#include <algorithm>

#include "nn/frozen_embedding.h"
#include "nn/frozen_head.h"

namespace lorikeet::nn {
namespace {

class FrozenGroup : public LinearGroup {
 public:
  explicit FrozenGroup(const GroupWeights& weights) : weights_(weights) {}

  at::Tensor forward(const at::Tensor& x, const UnitLoan& weights, const ForwardContext& /*context*/,
                     LinearKept* /*kept*/, ops::LeftTerms* /*left*/, const at::Tensor& into) const override {
    return ops::lora_linear(x, weights_.weight.of(weights), weights_.bias(), {}, std::nullopt, nullptr,
                            nullptr, into);
  }
  std::vector<ops::LowRankTerm> left_terms(const LinearKept& /*kept*/) const override { return {}; }
  ops::LoraLinearGradients backward(const at::Tensor& dy, const UnitLoan& weights,
                                    const ForwardContext& /*context*/, const LinearKept& /*kept*/,
                                    bool input_gradient, ops::LeftTerms* /*left*/,
                                    const at::Tensor& into) const override {
    return ops::lora_linear_backward(dy, {}, weights_.weight.of(weights), {}, std::nullopt, input_gradient,
                                     nullptr, into);
  }
  void add_a_gradients(const ops::LoraLinearGradients& /*gradients*/, const at::Tensor& /*x*/,
                       const ForwardContext& /*context*/) const override {}
  std::optional<std::vector<ops::LoraProjection>> plain_updates(
      const ForwardContext& /*context*/) const override {
    return std::vector<ops::LoraProjection>();
  }
  const GroupWeights& weights() const override { return weights_; }
  bool learns() const override { return false; }

 private:
  GroupWeights weights_;
};

}  // namespace

std::int64_t GroupSpec::out_features() const {
  std::int64_t total = 0;
  for (const Module& module : modules) total += module.out_features;
  return total;
}

GroupWeights::GroupWeights(const GroupSpec& spec, WeightUnit& unit, const precision::Policy& policy,
                           bool plain)
    : has_bias_(spec.bias) {
  std::vector<WeightSegment> weights, biases;
  const ops::QuantizedFormat* format =
      policy.quantization ? &ops::quantized_format(*policy.quantization) : nullptr;
  const ops::QuantizedFormat* quantized = plain ? nullptr : format;
  for (const Module& module : spec.modules) {
    require_valid_order(module);
    weights.push_back({.name = module.name + ".weight",
                       .shape = {module.out_features, spec.in_features},
                       .dtype = quantized != nullptr ? DType::kU8 : policy.base_storage,
                       .order = module.order,
                       .quantized = quantized,
                       .decoded_from = plain ? format : nullptr});
    if (!spec.bias) continue;
    biases.push_back({.name = module.name + ".bias",
                      .shape = {module.out_features},
                      .dtype = policy.base_storage,
                      .order = module.order});
  }
  weight = {&unit, unit.declare(std::move(weights)), spec.out_features(), spec.in_features};
  if (spec.bias) bias_segment_ = unit.declare(std::move(biases));
}

at::Tensor GroupWeights::bias() const {
  if (!has_bias_) return {};
  return weight.unit->vector(bias_segment_, weight.rows);
}

MatrixPlace declare_matrix(const std::string& name, std::int64_t rows, std::int64_t cols, WeightUnit& unit,
                           const precision::Policy& policy) {
  return {&unit, unit.declare({{name, {rows, cols}, policy.base_storage}}), rows, cols};
}

std::unique_ptr<LinearGroup> frozen_group(const GroupWeights& weights) {
  return std::make_unique<FrozenGroup>(weights);
}

std::unique_ptr<LinearGroup> LinearFactory::frozen(const GroupSpec& spec, WeightUnit& unit) const {
  return frozen_group({spec, unit, policy_, stays_plain(spec)});
}

GroupWeights LinearFactory::frozen_plain(const GroupSpec& spec, WeightUnit& unit, bool wide) const {
  precision::Policy policy = policy_;
  if (wide) policy.base_storage = policy.statistics;
  return {spec, unit, policy, /*plain=*/true};
}

bool LinearFactory::stays_plain(const GroupSpec& spec) const {
  return is_plain_ != nullptr && std::any_of(spec.modules.begin(), spec.modules.end(),
                                             [&](const Module& module) { return is_plain_(module.name); });
}

std::unique_ptr<LinearGroup> FrozenFactory::linear(const GroupSpec& spec, WeightUnit& unit) {
  return frozen(spec, unit);
}

std::unique_ptr<Embedding> FrozenFactory::embedding(const EmbeddingSpec& spec, const MatrixPlace& table) {
  return std::make_unique<FrozenEmbedding>(spec, table, policy_);
}

std::unique_ptr<Head> FrozenFactory::head(const HeadSpec& spec, const MatrixPlace& table) {
  return std::make_unique<FrozenHead>(spec, table, policy_);
}

}  // namespace lorikeet::nn
