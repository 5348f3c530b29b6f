#include <ATen/ATen.h>
#include <algorithm>

#include <utility>

#include "nn/batch.h"
#include "ops/lora/dora.h"
#include "ops/lora/lora_linear.h"
#include "peft/dora_magnitudes.h"
#include "peft/lora.h"

namespace lorikeet::peft {
namespace {

class LoraGroup : public nn::LinearGroup {
 public:
  LoraGroup(const nn::GroupSpec& spec, const nn::GroupWeights& weights, const LoraAdapters& adapters,
            std::uint32_t group, const std::vector<LoraAdapters::Module>& modules)
      : weights_(weights), adapters_(adapters), group_(group) {
    std::int64_t begin = 0;
    for (const nn::Module& m : spec.modules) {
      for (const LoraAdapters::Module& module : modules) {
        if (module.parts.front().name == m.name)
          parts_.push_back({module, DoraMagnitudes(adapters, module), begin, begin + module.weight.rows});
      }
      begin += m.out_features;
    }
  }

  at::Tensor forward(const at::Tensor& x, const nn::UnitLoan& weights, const nn::ForwardContext& context,
                     nn::LinearKept* kept, ops::LeftTerms* left, const at::Tensor& into) const override {
    const bool dora = adapters_.config().use_dora && x.size(0) > 0;
    if (dora) left = nullptr;  // it scales the complete product
    at::Tensor product =
        ops::lora_linear(x, weights_.weight.of(weights), dora ? at::Tensor() : weights_.bias(), projections(),
                         adapters_.dropout(context, group_), kept != nullptr ? &kept->low_rank : nullptr,
                         left, dora ? at::Tensor() : into);
    if (kept != nullptr) kept->terms_left = left != nullptr && !left->terms.empty();
    if (!dora) return product;
    at::Tensor y = ops::scale_columns(product, factors(weights), weights_.bias());
    if (kept != nullptr) kept->product = std::move(product);
    return into.defined() ? at::Tensor(into).copy_(y) : y;
  }

  std::vector<ops::LowRankTerm> left_terms(const nn::LinearKept& kept) const override {
    if (!kept.terms_left) return {};
    return ops::low_rank_terms(kept.low_rank, projections());
  }

  ops::LoraLinearGradients backward(const at::Tensor& dy, const nn::UnitLoan& weights,
                                    const nn::ForwardContext& context, const nn::LinearKept& kept,
                                    bool input_gradient, ops::LeftTerms* left,
                                    const at::Tensor& into) const override {
    const bool dora = adapters_.config().use_dora && dy.size(0) > 0;
    return ops::lora_linear_backward(dora ? through_factors(dy, kept.product, weights) : dy, kept.low_rank,
                                     weights_.weight.of(weights), projections(),
                                     adapters_.dropout(context, group_), input_gradient, left, into);
  }

  void add_a_gradients(const ops::LoraLinearGradients& gradients, const at::Tensor& x,
                       const nn::ForwardContext& context) const override {
    ops::add_a_gradients(gradients, x, adapters_.dropout(context, group_));
  }

  std::optional<std::vector<ops::LoraProjection>> plain_updates(
      const nn::ForwardContext& context) const override {
    // What is subtracted of an adapter that starts from the base lies elsewhere.
    const bool in_one_place = std::none_of(parts_.begin(), parts_.end(),
                                           [](const Part& part) { return part.module.start_a.has_value(); });
    if (adapters_.config().use_dora || !in_one_place || adapters_.dropout(context, group_)) return {};
    return projections();
  }
  const nn::GroupWeights& weights() const override { return weights_; }
  bool learns() const override { return true; }

 private:
  struct Part {
    LoraAdapters::Module module;
    DoraMagnitudes magnitudes;
    std::int64_t begin, end;  // its rows of the group's output
  };

  std::vector<ops::LoraProjection> projections() const {
    std::vector<ops::LoraProjection> projections;
    projections.reserve(parts_.size());
    for (const Part& part : parts_)
      projections.push_back(adapters_.projection(part.module, part.begin, part.end));
    return projections;
  }

  // What each column of the product is multiplied by: 1 where its module has no adapter.
  at::Tensor factors(const nn::UnitLoan& weights) const {
    at::Tensor factors;
    for (const Part& part : parts_) {
      const ops::DoraMagnitude dora = *part.magnitudes.of(part.module.weight.of(weights));
      if (!factors.defined()) factors = at::ones({weights_.weight.rows}, dora.norms.options());
      at::Tensor own = factors.slice(0, part.begin, part.end);
      at::div_out(own, dora.magnitude, dora.norms);
    }
    return factors;
  }

  // The gradient of the product; adds those of the magnitudes.
  at::Tensor through_factors(const at::Tensor& dy, const at::Tensor& product,
                             const nn::UnitLoan& weights) const {
    const auto back = ops::scale_columns_backward(dy, product, factors(weights));
    for (const Part& part : parts_)
      part.magnitudes.last().add_gradient(back.factors.slice(0, part.begin, part.end));
    return back.dx;
  }

  nn::GroupWeights weights_;
  const LoraAdapters& adapters_;
  std::uint32_t group_;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<nn::LinearGroup> LoraFactory::linear(const nn::GroupSpec& spec, nn::WeightUnit& unit) {
  const std::uint32_t group = adapters_.groups();
  nn::GroupWeights weights(spec, unit, policy_, stays_plain(spec));
  std::vector<LoraAdapters::Module> modules;
  if (auto slice = adapters_.declare_slice(spec, weights.weight)) {
    modules.push_back(std::move(*slice));
  } else if (!spec.slice || !spec.slice->only) {
    modules = adapters_.declare(spec.modules, weights.weight, LoraAdapters::Kind::kLinear, spec.by_name_only);
  }
  if (modules.empty()) return nn::frozen_group(weights);
  return std::make_unique<LoraGroup>(spec, weights, adapters_, group, modules);
}

}  // namespace lorikeet::peft
