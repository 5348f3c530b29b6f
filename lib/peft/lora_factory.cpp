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
    for (const nn::Projection& p : spec.projections) {
      for (const LoraAdapters::Module& module : modules) {
        if (module.name == p.name) parts_.push_back({module, begin, begin + p.out_features});
      }
      begin += p.out_features;
    }
  }

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const override {
    std::vector<ops::LoraProjection> projections;
    for (const Part& part : parts_)
      projections.push_back(projection(adapters_, part.module, part.begin, part.end));
    std::optional<ops::LoraDropout> dropout;
    if (context.training && adapters_.config().dropout > 0) {
      dropout = ops::LoraDropout{adapters_.config().dropout, adapters_.seed(),          context.step, group_,
                                 context.batch.sample_ids,   context.batch.position_ids};
    }
    const at::Tensor anchor = context.training ? adapters_.store().anchor() : at::Tensor();
    return ops::lora_linear(x, weights_.weight, weights_.bias(), projections, dropout, anchor);
  }

 private:
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
  LoraHead(const nn::HeadSpec& spec, std::shared_ptr<const ops::FrozenWeight> weight,
           const LoraAdapters& adapters, LoraAdapters::Module module)
      : nn::FrozenHead(spec, std::move(weight), adapters.store().policy()),
        adapters_(adapters),
        module_(std::move(module)),
        vocab_size_(spec.vocab_size) {}

 protected:
  std::vector<ops::LoraProjection> adapters() const override {
    return {projection(adapters_, module_, 0, vocab_size_)};
  }
  at::Tensor anchor() const override { return adapters_.store().anchor(); }

 private:
  const LoraAdapters& adapters_;
  LoraAdapters::Module module_;
  std::int64_t vocab_size_;
};

}  // namespace

std::unique_ptr<nn::LinearGroup> LoraFactory::linear(const nn::GroupSpec& spec, nn::WeightUnit& unit) {
  const std::uint32_t group = adapters_.groups();
  const auto modules = adapters_.declare(spec.projections, spec.in_features, false);
  if (modules.empty()) return frozen_.linear(spec, unit);
  return std::make_unique<LoraGroup>(spec, unit, adapters_, group, modules);
}

std::unique_ptr<nn::Head> LoraFactory::head(const nn::HeadSpec& spec, nn::WeightUnit& unit) {
  return tied_head(
      spec, nn::declare_matrix(spec.name + ".weight", spec.vocab_size, spec.hidden_size, unit, policy_));
}

std::unique_ptr<nn::Head> LoraFactory::tied_head(const nn::HeadSpec& spec,
                                                 std::shared_ptr<const ops::FrozenWeight> table) {
  const auto modules = adapters_.declare({{spec.name, spec.vocab_size}}, spec.hidden_size, true);
  if (modules.empty()) return frozen_.tied_head(spec, std::move(table));
  if (adapters_.config().dropout > 0) {
    throw Error("[lora.dropout] dropout is not built for an adapter on '" + spec.name +
                "'; set lora.dropout=0 or leave '" + spec.name + "' out of lora.target_modules");
  }
  return std::make_unique<LoraHead>(spec, std::move(table), adapters_, modules.front());
}

}  // namespace lorikeet::peft
