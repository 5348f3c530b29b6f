#include "train/kept_layers.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace lorikeet::train {
namespace {

// The tensors of `kept` that have data, those that are one tensor together.
std::vector<std::vector<at::Tensor*>> places_in(nn::LayerKept& kept) {
  std::vector<std::vector<at::Tensor*>> places;
  for (at::Tensor* tensor : nn::tensors_of(kept)) {
    if (!tensor->defined() || tensor->numel() == 0) continue;
    const auto same = std::find_if(places.begin(), places.end(),
                                   [&](const auto& place) { return place.front()->is_same(*tensor); });
    if (same != places.end()) {
      same->push_back(tensor);
    } else {
      places.push_back({tensor});
    }
  }
  return places;
}

}  // namespace

KeptLayers::~KeptLayers() {
  try {
    for (Layer& layer : layers_) finish(layer);
  } catch (const std::exception&) {  // a device that failed: the error that ends the pass says so
  }
}

void KeptLayers::put(std::int64_t i, nn::LayerKept&& kept) {
  layer(i).kept = std::move(kept);
  if (offload_ == nullptr) return;
  if (i > first_) finish(layer(i - 1));
  if (i + 1 < std::ssize(layers_)) send(layer(i));
}

nn::LayerKept KeptLayers::take(std::int64_t i) {
  finish(layer(i));
  nn::LayerKept kept = std::exchange(layer(i).kept, {});
  if (offload_ != nullptr && i > first_) fetch(layer(i - 1));
  return kept;
}

template <typename Begin>
void KeptLayers::move(Layer& layer, const Begin& begin) {
  for (const auto& place : layer.places) {
    auto [to, done] = begin(*place.front());
    layer.sources.push_back(*place.front());
    layer.copies.push_back(std::move(done));
    for (at::Tensor* tensor : place) *tensor = to;
  }
}

void KeptLayers::send(Layer& layer) {
  layer.places = places_in(layer.kept);
  move(layer, [&](const at::Tensor& tensor) {
    // Nearly all are as large as there are tokens.
    const auto of_token = static_cast<std::int64_t>(tensor.nbytes()) / tokens_;
    return offload_->transfers.to_host(tensor, of_token * offload_->largest_tokens);
  });
}

void KeptLayers::fetch(Layer& layer) {
  move(layer, [&](const at::Tensor& tensor) { return offload_->transfers.to_device(tensor); });
  layer.places.clear();
}

void KeptLayers::finish(Layer& layer) {
  for (auto& copy : layer.copies) offload_->transfers.wait(copy);
  layer.copies.clear();
  layer.sources.clear();
}

}  // namespace lorikeet::train
