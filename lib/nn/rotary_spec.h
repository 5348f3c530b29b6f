#pragma once

#include <cstdint>
#include <vector>

namespace lorikeet::nn {

/// Which of a model's rotary tables a layer's queries and keys are rotated by.
enum class LayerRotary { kNone, kGlobal, kLocal };

/// Rotary position embedding (Su et al. 2021) and its extensions to longer contexts.
struct RotarySpec {
  enum class Scaling { kNone, kLinear, kLlama3, kLongrope };

  std::int64_t head_dim;
  std::int64_t rotary_dim;  ///< the first so many dimensions of each head are rotated
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;            ///< kLinear, kLlama3: how much longer the context becomes
  double low_freq_factor = 1.0;   ///< kLlama3
  double high_freq_factor = 4.0;  ///< kLlama3
  /// kLlama3: the context length of pretraining. kLongrope: sequences that are longer take long_factor.
  double original_max_position = 8192;
  std::vector<double> short_factor, long_factor;  ///< kLongrope: divide the frequency of each pair
  double attention_factor = 1;                    ///< kLongrope: multiplies cosines and sines

  bool operator==(const RotarySpec&) const = default;
};

}  // namespace lorikeet::nn
