#include "peft/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/strings.h"

namespace lorikeet::peft {
namespace {

std::vector<std::string> unique(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

std::vector<LoraAdapters::Module> LoraAdapters::declare(const std::vector<nn::Module>& modules,
                                                        std::int64_t in_features, bool is_head) {
  std::vector<Module> added;
  std::vector<AdapterSegment> as, bs;
  for (const nn::Module& module : modules) {
    seen_.push_back(module.name);
    if (!config_.matches(module.name, is_head)) continue;
    as.push_back({.name = module.name + ".lora_A.weight", .shape = {config_.rank, in_features}});
    bs.push_back({.name = module.name + ".lora_B.weight",
                  .shape = {module.out_features, config_.rank},
                  .order = module.order});
    added.push_back({module.name, 0, 0});
  }
  if (added.empty()) return added;
  // All A of a group lie next to each other: together they are one [sum of ranks, in] matrix.
  const std::size_t count = added.size();
  as.insert(as.end(), bs.begin(), bs.end());
  const std::size_t first = store_.declare(std::move(as));
  for (std::size_t i = 0; i < count; ++i) {
    added[i].a = first + i;
    added[i].b = first + count + i;
  }
  modules_.insert(modules_.end(), added.begin(), added.end());
  ++groups_;
  return added;
}

void LoraAdapters::initialize(LoraInit init) {
  const at::NoGradGuard no_grad;
  store_.values().zero_();
  for (const Module& module : modules_) {
    const AdapterSegment& segment = store_.segment(module.a);
    PhiloxStream stream(seed_, segment.name);
    std::vector<float> values(static_cast<std::size_t>(segment.size()));
    if (init == LoraInit::kKaiming) {
      // torch.nn.init.kaiming_uniform_(a=sqrt(5)): uniform in +-1/sqrt(fan_in).
      const float bound = 1.0F / std::sqrt(static_cast<float>(segment.shape[1]));
      for (float& v : values) v = (2.0F * stream.uniform() - 1.0F) * bound;
    } else {
      const float deviation = 1.0F / static_cast<float>(config_.rank);
      for (float& v : values) v = stream.normal() * deviation;
    }
    store_.value(module.a).copy_(at::tensor(values).view(segment.shape));
  }
  store_.refresh_compute();
}

std::vector<std::string> LoraAdapters::narrower_than_rank() const {
  std::vector<std::string> names;
  for (const Module& module : modules_) {
    const std::int64_t in = store_.segment(module.a).shape[1], out = store_.segment(module.b).shape[0];
    if (config_.rank > std::min(in, out)) names.push_back(module.name);
  }
  return names;
}

void LoraAdapters::require_matches() const {
  if (!config_.targets_all_linear()) {
    for (const std::string& target : config_.target_modules) {
      const bool found = std::any_of(modules_.begin(), modules_.end(), [&](const Module& m) {
        return m.name == target || m.name.ends_with("." + target);
      });
      if (found) continue;
      std::vector<std::string> known;
      known.reserve(seen_.size());
      for (const std::string& name : seen_) known.push_back(last_part(name));
      known = unique(std::move(known));
      throw Error("[lora.target_modules] '" + target + "' matches no linear module of this model" +
                  did_you_mean(target, known) + "; it has " + join(known, ", "));
    }
  }
  if (modules_.empty()) throw Error("[lora.target_modules] no module of this model matches");
}

}  // namespace lorikeet::peft
