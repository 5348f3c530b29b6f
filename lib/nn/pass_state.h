#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

namespace lorikeet::nn {

/// Keys and values that later layers of the same pass read, and the gradients that these give them. What is
/// here outlives a layer's recomputation: a reader's backward runs before that of the layer that made them.
class SharedKeys {
 public:
  /// Of the layer that makes them: [T, k heads | v heads] as its attention reads them. Once more where the
  /// layer is computed again.
  void put(std::int64_t layer, const at::Tensor& rows) { entries_[layer].rows = rows; }
  /// Throws std::out_of_range for a layer that made none in this pass.
  const at::Tensor& rows(std::int64_t layer) const { return entries_.at(layer).rows; }

  /// Adds a reader's gradients of keys and values, each [T, heads, head_dim].
  void add_gradients(std::int64_t layer, const at::Tensor& k, const at::Tensor& v);
  /// What readers added, [T, k heads | v heads]; undefined where none did. Gives it up.
  at::Tensor take_gradient(std::int64_t layer);

 private:
  struct Entry {
    at::Tensor rows, gradient;
  };
  std::map<std::int64_t, Entry> entries_;
};

/// What parts of a model leave for later ones of the same pass, beside the stream.
struct PassState {
  SharedKeys keys;
  at::Tensor layer_inputs;           ///< [T, layers * width]: see layer_inputs.h; undefined without them
  at::Tensor layer_input_gradients;  ///< the same, where backward wants them
};

}  // namespace lorikeet::nn
