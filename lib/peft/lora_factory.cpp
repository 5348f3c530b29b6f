#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/batch.h"
#include "nn/frozen_head.h"
#include "ops/lora/lora_linear.h"
#include "peft/lora.h"

namespace lorikeet::peft {
namespace {

// The adapter of `module` on output rows [begin, end) as the operator takes it.
ops::LoraProjection projection(const LoraAdapters& adapters, const LoraAdapters::Module& module,
                               std::int64_t begin, std::int64_t end) {
  const AdapterStore& store = adapters.store();
  return {begin,
          end,
          store.compute(module.a),
          store.compute(module.b),
          store.gradient(module.a),
          store.gradient(module.b),
          adapters.config().scale(),
          module.reached.get()};
}

class LoraGroup : public nn::LinearGroup {
 public:
  LoraGroup(const nn::GroupSpec& spec, nn::WeightUnit& unit, const LoraAdapters& adapters,
            std::uint32_t group, const std::vector<LoraAdapters::Module>& modules)
      : weights_(spec, unit, adapters.store().policy()), adapters_(adapters), group_(group) {
    std::int64_t begin = 0;
    for (const nn::Module& m : spec.modules) {
      for (const LoraAdapters::Module& module : modules) {
        if (module.name == m.name) parts_.push_back({module, begin, begin + m.out_features});
      }
      begin += m.out_features;
    }
  }

  at::Tensor forward(const at::Tensor& x, const nn::UnitLoan& weights, const nn::ForwardContext& context,
                     at::Tensor* low_rank) const override {
    return ops::lora_linear(x, weights_.weight.of(weights), weights_.bias(), projections(), dropout(context),
                            low_rank);
  }

  at::Tensor backward(const at::Tensor& dy, const nn::InputAgain& input, const nn::UnitLoan& weights,
                      const nn::ForwardContext& context, const at::Tensor& low_rank,
                      bool input_gradient) const override {
    return ops::lora_linear_backward(dy, input, low_rank, weights_.weight.of(weights), projections(),
                                     dropout(context), input_gradient);
  }

  bool learns() const override { return true; }

 private:
  std::vector<ops::LoraProjection> projections() const {
    std::vector<ops::LoraProjection> projections;
    projections.reserve(parts_.size());
    for (const Part& part : parts_)
      projections.push_back(projection(adapters_, part.module, part.begin, part.end));
    return projections;
  }

  std::optional<ops::LoraDropout> dropout(const nn::ForwardContext& context) const {
    if (!context.training || adapters_.config().dropout == 0) return std::nullopt;
    return ops::LoraDropout{adapters_.config().dropout, adapters_.seed(),          context.step, group_,
                            context.batch.sample_ids,   context.batch.position_ids};
  }

  struct Part {
    LoraAdapters::Module module;
    std::int64_t begin, end;  // its rows of the group's output
  };
  nn::GroupWeights weights_;
  const LoraAdapters& adapters_;
  std::uint32_t group_;
  std::vector<Part> parts_;
};

class LoraHead : public nn::FrozenHead {
 public:
  LoraHead(const nn::HeadSpec& spec, const nn::MatrixPlace& table, const LoraAdapters& adapters,
           LoraAdapters::Module module)
      : nn::FrozenHead(spec, table, adapters.store().policy()),
        adapters_(adapters),
        module_(std::move(module)),
        vocab_size_(spec.vocab_size) {}

 protected:
  std::vector<ops::LoraProjection> adapters() const override {
    return {projection(adapters_, module_, 0, vocab_size_)};
  }

 private:
  const LoraAdapters& adapters_;
  LoraAdapters::Module module_;
  std::int64_t vocab_size_;
};

}  // namespace

std::unique_ptr<nn::LinearGroup> LoraFactory::linear(const nn::GroupSpec& spec, nn::WeightUnit& unit) {
  const std::uint32_t group = adapters_.groups();
  const auto modules = adapters_.declare(spec.modules, spec.in_features, false);
  if (modules.empty()) return frozen_.linear(spec, unit);
  return std::make_unique<LoraGroup>(spec, unit, adapters_, group, modules);
}

std::unique_ptr<nn::Head> LoraFactory::head(const nn::HeadSpec& spec, const nn::MatrixPlace& table) {
  const auto modules = adapters_.declare({{spec.name, spec.vocab_size}}, spec.hidden_size, true);
  if (modules.empty()) return frozen_.head(spec, table);
  if (adapters_.config().dropout > 0) {
    throw Error("[lora.dropout] dropout is not built for an adapter on '" + spec.name +
                "'; set lora.dropout=0 or leave '" + spec.name + "' out of lora.target_modules");
  }
  return std::make_unique<LoraHead>(spec, table, adapters_, modules.front());
}

}  // namespace lorikeet::peft
