#include "parallel/gradient_reducer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "ops/dtype.h"

namespace lorikeet::parallel {
namespace {

// The layer of every frozen weight, by its name; the head, and what isn't found, counts as one more.
std::map<std::string, std::size_t> layers_by_weight(const nn::CausalLM& model) {
  std::map<std::string, std::size_t> layers;
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    for (const nn::WeightSegment& segment : model.layers()[layer]->unit().segments())
      layers[segment.name] = layer;
  }
  return layers;
}

// For every layer, and for the head behind them: how many adapter elements it and what is above it have.
// Those of the embedding, of a table that it shares with the head and of layers' inputs are complete when the
// step is.
std::vector<std::int64_t> elements_from(const peft::LoraAdapters& adapters, const nn::CausalLM& model) {
  const auto layer_of = layers_by_weight(model);
  const std::size_t head = model.layers().size();
  std::vector<std::int64_t> counts(head + 1, 0), ends(head + 1, 0);
  const auto add = [&](const std::string& module, std::size_t segment) {
    if (module == model.spec().embedding_name) return;
    if (const auto& inputs = model.spec().layer_inputs; inputs && module == inputs->projection) return;
    const auto found = layer_of.find(module + ".weight");
    const std::size_t layer = found == layer_of.end() ? head : found->second;
    const peft::AdapterSegment& s = adapters.store().segment(segment);
    if (s.frozen) return;
    counts[layer] += s.size();
    ends[layer] = std::max(ends[layer], s.offset + s.size());
  };
  for (const auto& module : adapters.modules()) {
    for (const std::size_t segment : module.segments()) add(module.parts.front().name, segment);
  }
  for (const auto& table : adapters.tables()) add(table.name, table.segment);
  for (std::size_t layer = head + 1; layer-- > 0;) {
    if (layer < head) counts[layer] += counts[layer + 1];
    if (ends[layer] != 0 && ends[layer] != counts[layer]) {
      throw Error("[parallel] the adapters of " +
                      (layer == head ? "the head" : "layer " + std::to_string(layer)) +
                      " lie out of backward's order",
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
  ends_ = elements_from(adapters, model);
}

void GradientReducer::completed(std::int64_t layer) {
  const std::int64_t end = ends_.at(static_cast<std::size_t>(layer));
  while (end - sent_ >= bucket_elements_) send(bucket_elements_);
}

void GradientReducer::send(std::int64_t elements) {
  Bucket bucket;
  bucket.target = store_.gradients().narrow(0, sent_, elements);
  bucket.sent = bucket.target.to(ops::to_torch(store_.policy().reduce));
  bucket.pending = group_.all_reduce(bucket.sent);
  buckets_.push_back(std::move(bucket));
  sent_ += elements;
}

void GradientReducer::finish() {
  while (sent_ < store_.numel()) send(std::min(bucket_elements_, store_.numel() - sent_));
  for (Bucket& bucket : buckets_) {
    bucket.pending.wait();
    if (!bucket.sent.is_same(bucket.target)) bucket.target.copy_(bucket.sent);
  }
  buckets_.clear();
  sent_ = 0;
}

}  // namespace lorikeet::parallel
