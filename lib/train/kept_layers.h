#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/decoder_layer.h"
#include "ops/host_transfers.h"

namespace lorikeet::train {

/// Where activations go that are offloaded: a run's, for all its micro-batches.
struct ActivationOffload {
  ops::HostTransfers transfers;
  /// Tokens of the largest micro-batch. The host's memory is taken for so many, since what is pinned for one
  /// size isn't used for another, and stays pinned.
  std::int64_t largest_tokens = 0;
};

/// What layers keep from their forward until their backward: layers `first` to `layers` - 1 of a model.
///
/// With `offload`, which isn't null then, it goes to the host's memory behind the forward pass and comes back
/// ahead of the backward pass; only what the last layer keeps, which is wanted at once, stays. On the device
/// there is at a time what one layer keeps, and what its neighbour keeps, whose copy is under way.
class KeptLayers {
 public:
  /// `tokens`: of the micro-batch.
  KeptLayers(std::int64_t first, std::int64_t layers, std::int64_t tokens, ActivationOffload* offload)
      : first_(first), layers_(static_cast<std::size_t>(layers)), tokens_(tokens), offload_(offload) {}
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

  std::int64_t first_;
  std::vector<Layer> layers_;
  std::int64_t tokens_;
  ActivationOffload* offload_;
};

}  // namespace lorikeet::train
