#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nn/decoder_layer.h"
#include "ops/host_transfers.h"

namespace lorikeet::train {

/// What layers keep from their forward until their backward: layers `first` to `layers` - 1 of a model.
///
/// With `offload` it goes to the host's memory behind the forward pass and comes back ahead of the backward
/// pass; only what the last layer keeps, which is wanted at once, stays. On the device there is at a time
/// what one layer keeps, and what its neighbour keeps, whose copy is under way.
class KeptLayers {
 public:
  KeptLayers(const at::Device& device, std::int64_t first, std::int64_t layers, bool offload)
      : first_(first), layers_(static_cast<std::size_t>(layers)) {
    if (offload) transfers_.emplace(device);
  }
  /// After an exception copies may be under way: makes the device's current stream wait for them, before
  /// their memory is used again.
  ~KeptLayers();
  KeptLayers(const KeptLayers&) = delete;
  KeptLayers& operator=(const KeptLayers&) = delete;

  /// What layer `i` keeps; layers come in ascending order.
  void put(std::int64_t i, nn::LayerKept&& kept);
  /// The same again; layers come in descending order.
  nn::LayerKept take(std::int64_t i);

 private:
  struct Layer {
    nn::LayerKept kept;
    std::vector<std::vector<at::Tensor*>> places;     // in it; those of one place are the same tensor
    std::vector<at::Tensor> sources;                  // of copies that are under way
    std::vector<std::shared_ptr<c10::Event>> copies;  // the same
  };
  Layer& layer(std::int64_t i) { return layers_.at(static_cast<std::size_t>(i)); }
  // Puts copies that `begin` begins in the tensors' places.
  template <typename Begin>
  void move(Layer& layer, const Begin& begin);
  void send(Layer& layer);
  void fetch(Layer& layer);
  void finish(Layer& layer);

  std::optional<ops::HostTransfers> transfers_;  // with offload
  std::int64_t first_;
  std::vector<Layer> layers_;
};

}  // namespace lorikeet::train
