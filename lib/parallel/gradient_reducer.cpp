#include "parallel/gradient_reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "ops/dtype.h"

namespace lorikeet::parallel {
namespace {

// For every unit of the model, in the order of use: how many adapter elements it and the units behind it
// have.
std::vector<std::int64_t> elements_from(const peft::LoraAdapters& adapters, const nn::CausalLM& model) {
  const auto& units = model.store().units();
  std::map<std::string, std::size_t> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const nn::WeightSegment& segment : units[u]->segments()) unit_of[segment.name] = u;
  }
  std::vector<std::int64_t> counts(units.size() + 1, 0), ends(units.size(), 0);
  for (const auto& module : adapters.modules()) {
    const auto found = unit_of.find(module.name + ".weight");
    // A tied head's table is the embedding's, but its adapter is used last.
    const std::size_t unit = found == unit_of.end() ? units.size() - 1 : found->second;
    for (const std::size_t segment : {module.a, module.b}) {
      const peft::AdapterSegment& s = adapters.store().segment(segment);
      counts[unit] += s.size();
      ends[unit] = std::max(ends[unit], s.offset + s.size());
    }
  }
  for (std::size_t u = units.size(); u-- > 0;) {
    counts[u] += counts[u + 1];
    if (ends[u] != 0 && ends[u] != counts[u]) {
      throw Error("[parallel] the adapters of '" + units[u]->name() + "' lie out of backward's order",
                  ErrorKind::kRunFailed);
    }
  }
  return counts;
}

}  // namespace

GradientReducer::GradientReducer(comm::Communicator& group, peft::LoraAdapters& adapters,
                                 const nn::CausalLM& model, std::int64_t bucket_bytes)
    : group_(group), store_(adapters.store()) {
  const auto element = static_cast<std::int64_t>(dtype_size(store_.policy().reduce));
  bucket_elements_ = std::max<std::int64_t>(bucket_bytes / element, 1);
  // Units are: embedding, one a layer, head.
  const std::vector<std::int64_t> counts = elements_from(adapters, model);
  ends_.assign(counts.begin() + 1, counts.end() - 1);
  layer_done_ = [this](std::int64_t layer) {
    const std::int64_t end = ends_.at(static_cast<std::size_t>(layer));
    while (end - sent_ >= bucket_elements_) send(bucket_elements_);
  };
}

void GradientReducer::send(std::int64_t elements) {
  const at::NoGradGuard no_grad;
  Bucket bucket;
  bucket.target = store_.gradients().narrow(0, sent_, elements);
  bucket.sent = bucket.target.to(ops::to_torch(store_.policy().reduce));
  bucket.pending = group_.all_reduce(bucket.sent);
  buckets_.push_back(std::move(bucket));
  sent_ += elements;
}

void GradientReducer::finish() {
  const at::NoGradGuard no_grad;
  while (sent_ < store_.numel()) send(std::min(bucket_elements_, store_.numel() - sent_));
  for (Bucket& bucket : buckets_) {
    bucket.pending.wait();
    if (!bucket.sent.is_same(bucket.target)) bucket.target.copy_(bucket.sent);
  }
  buckets_.clear();
  sent_ = 0;
}

}  // namespace lorikeet::parallel
