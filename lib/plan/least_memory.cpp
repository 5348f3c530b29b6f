#include "plan/least_memory.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace lorikeet::plan {
namespace {

// Families repeat kinds of layers after at most six.
constexpr std::int64_t kLayers = 8;

// Of a model that has only the last `layers` layers, beside the whole one's frozen weights.
std::int64_t total_of_last(const MemoryInput& input, std::int64_t layers) {
  nn::CausalLMSpec spec = *input.model;
  spec.layers.erase(spec.layers.begin(), spec.layers.end() - layers);
  spec.shape.layers = layers;
  MemoryInput shorter = input;
  shorter.model = &spec;
  return step_memory(shorter).total();
}

}  // namespace

std::int64_t least_memory(const MemoryInput& input) {
  const config::MemorySaving full{.checkpointing = config::ActivationCheckpointing::kFull};
  if (input.saving != full || input.target.device != at::kCUDA)
    throw Error("[plan] the least memory is that of a GPU with activation checkpointing, without offload");
  const std::vector<nn::DecoderLayerSpec>& all = input.model->layers;
  const std::int64_t layers = std::ssize(all);
  // Layers that read the keys of earlier ones can't be alone, and heads of two sizes make layers of two.
  const bool alike = std::all_of(all.begin(), all.end(), [&](const nn::DecoderLayerSpec& layer) {
    return !layer.attention.keys_of &&
           layer.attention.layout.head_dim == all.front().attention.layout.head_dim;
  });
  if (layers <= kLayers || !alike) return step_memory(input).total();
  const std::int64_t least = total_of_last(input, kLayers);
  const std::int64_t each = least - total_of_last(input, kLayers - 1);
  return least + (layers - kLayers) * each;
}

}  // namespace lorikeet::plan
