#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lorikeet::nn {

/// Rotary position embedding (Su et al. 2021) and its extensions to longer contexts.
struct RotarySpec {
  enum class Scaling { kNone, kLinear, kLlama3 };

  std::int64_t head_dim;
  std::int64_t rotary_dim;  ///< the first so many dimensions of each head are rotated
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;                  ///< kLinear, kLlama3: how much longer the context becomes
  double low_freq_factor = 1.0;         ///< kLlama3
  double high_freq_factor = 4.0;        ///< kLlama3
  double original_max_position = 8192;  ///< kLlama3: the context length of pretraining

  bool operator==(const RotarySpec&) const = default;
};

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

}  // namespace lorikeet::nn
