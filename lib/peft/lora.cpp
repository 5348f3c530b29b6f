#include "peft/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "ops/lora/dora.h"

namespace lorikeet::peft {
std::vector<std::size_t> LoraAdapters::Module::segments() const {
  std::vector<std::size_t> all{a, b};
  if (magnitude) all.push_back(*magnitude);
  return all;
}

std::vector<LoraAdapters::Module> LoraAdapters::declare(const std::vector<nn::Module>& modules,
                                                        const nn::MatrixPlace& weight, bool is_head) {
  std::vector<Module> added;
  std::vector<AdapterSegment> as, bs, magnitudes;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const nn::Module& module = modules[i];
    seen_.push_back(module.name);
    if (!rules_.matches(module.name, is_head)) continue;
    const std::int64_t rank = rules_.rank(module.name);
    as.push_back(
        {.name = module.name + ".lora_A.weight", .shape = {rank, weight.cols}, .frozen = config_.freeze_a});
    bs.push_back({.name = module.name + ".lora_B.weight",
                  .shape = {module.out_features, rank},
                  .order = module.order});
    if (config_.use_dora) {
      magnitudes.push_back({.name = module.name + ".lora_magnitude_vector",
                            .shape = {module.out_features},
                            .order = module.order});
    }
    added.push_back({.name = module.name,
                     .a = 0,
                     .b = 0,
                     .magnitude = std::nullopt,
                     .scale = rules_.scale(module.name),
                     .weight = {weight.unit, weight.segment + i, module.out_features, weight.cols}});
  }
  if (added.empty()) return added;
  // All A of a group lie next to each other: together they are one [sum of ranks, in] matrix.
  const std::size_t count = added.size();
  as.insert(as.end(), bs.begin(), bs.end());
  as.insert(as.end(), magnitudes.begin(), magnitudes.end());
  const std::size_t first = store_.declare(std::move(as));
  for (std::size_t i = 0; i < count; ++i) {
    added[i].a = first + i;
    added[i].b = first + count + i;
    if (config_.use_dora) added[i].magnitude = first + 2 * count + i;
  }
  modules_.insert(modules_.end(), added.begin(), added.end());
  ++groups_;
  return added;
}

void LoraAdapters::initialize(LoraInit init, const nn::WeightStore& base) {
  const at::NoGradGuard no_grad;
  store_.all_values().zero_();
  for (const Module& module : modules_) {
    const AdapterSegment& segment = store_.segment(module.a);
    PhiloxStream stream(seed_, segment.name);
    std::vector<float> values(static_cast<std::size_t>(segment.size()));
    if (init == LoraInit::kKaiming) {
      // torch.nn.init.kaiming_uniform_(a=sqrt(5)): uniform in +-1/sqrt(fan_in).
      const float bound = 1.0F / std::sqrt(static_cast<float>(segment.shape[1]));
      for (float& v : values) v = (2.0F * stream.uniform() - 1.0F) * bound;
    } else {
      const float deviation = 1.0F / static_cast<float>(segment.shape[0]);
      for (float& v : values) v = stream.normal() * deviation;
    }
    store_.value(module.a).copy_(at::tensor(values).view(segment.shape));
  }
  store_.refresh_compute();
  if (config_.use_dora) initialize_magnitudes(base);
}

void LoraAdapters::initialize_magnitudes(const nn::WeightStore& base) {
  std::vector<const nn::WeightUnit*> order;
  for (const Module& module : modules_) {
    if (order.empty() || order.back() != module.weight.unit) order.push_back(module.weight.unit);
  }
  base.expect(order);
  auto module = modules_.begin();
  for (const nn::WeightUnit* unit : order) {
    const nn::UnitLoan weights = base.borrow(*unit);
    for (; module != modules_.end() && module->weight.unit == unit; ++module)
      store_.value(*module->magnitude).copy_(norms(*module, weights));
  }
  store_.refresh_compute();
}

at::Tensor LoraAdapters::norms(const Module& module, const nn::UnitLoan& weights) const {
  return ops::dora_norms(module.weight.of(weights), {{.out_begin = 0,
                                                      .out_end = module.weight.rows,
                                                      .a = store_.compute(module.a),
                                                      .b = store_.compute(module.b),
                                                      .grad_a = {},
                                                      .grad_b = {},
                                                      .scale = module.scale}});
}

std::vector<std::string> LoraAdapters::narrower_than_rank() const {
  std::vector<std::string> names;
  for (const Module& module : modules_) {
    const std::vector<std::int64_t>&a = store_.segment(module.a).shape, &b = store_.segment(module.b).shape;
    if (a[0] > std::min(a[1], b[0])) names.push_back(module.name);
  }
  return names;
}

void LoraAdapters::require_matches() const {
  std::vector<std::string> adapted;
  for (const Module& module : modules_) adapted.push_back(module.name);
  rules_.require_used(seen_, adapted);
}

}  // namespace lorikeet::peft
