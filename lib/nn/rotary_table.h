#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/rotary_spec.h"

namespace lorikeet::nn {

/// Cosines and sines of all positions, fp32 [positions, rotary_dim / 2], extended when a longer sequence
/// comes. Llama 3.1's scaling: "The Llama 3 Herd of Models", as published with the checkpoints' rope_scaling.
class RotaryTable {
 public:
  explicit RotaryTable(const RotarySpec& spec);

  struct Rows {
    at::Tensor cos, sin;  // fp32 [T, rotary_dim / 2]
  };
  /// The rows of `position_ids` (int64 [T], all below `positions`), on their device.
  Rows rows(const at::Tensor& position_ids, std::int64_t positions) const;

  /// Angular frequency of each pair of dimensions, fp32 [rotary_dim / 2].
  const at::Tensor& inverse_frequencies() const { return inverse_frequencies_; }

 private:
  RotarySpec spec_;
  at::Tensor inverse_frequencies_;
  mutable at::Tensor cos_, sin_;
};

/// Of a batch, computed once for all layers; empty where a model has no rotary.
using RotaryRows = std::optional<RotaryTable::Rows>;

}  // namespace lorikeet::nn
