#pragma once

#include <cstdint>
#include <vector>

namespace lorikeet::nn {

/// Which of a model's rotary tables a layer's queries and keys are rotated by.
enum class LayerRotary { kNone, kGlobal, kLocal };

/// Rotary position embedding (Su et al. 2021) and its extensions to longer contexts.
struct RotarySpec {
  enum class Scaling { kNone, kLinear, kLlama3, kLongrope, kYarn, kProportional };

  std::int64_t head_dim;
  std::int64_t rotary_dim;  ///< the first so many dimensions of each head are rotated
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;            ///< kLinear, kLlama3, kYarn, kProportional: how much longer the context is
  double low_freq_factor = 1.0;   ///< kLlama3
  double high_freq_factor = 4.0;  ///< kLlama3
  /// kLlama3, kYarn: the context length of pretraining. kLongrope: longer sequences take long_factor.
  double original_max_position = 8192;
  std::vector<double> short_factor, long_factor;  ///< kLongrope: divide the frequency of each pair
  double attention_factor = 1;                    ///< kLongrope, kYarn: multiplies cosines and sines
  /// kYarn: pairs that turn more often than beta_fast times in the original context keep their frequency,
  /// those that turn less often than beta_slow times have it divided by `factor`; between them it is blended.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;  ///< kYarn: the two ends of the blend lie at whole pairs
  /// Queries of position p are multiplied by 1 + query_beta log(1 + floor(p / original_max_position)), as
  /// Llama 4 and Ministral 3 do; 0: they are not.
  double query_beta = 0;
  /// kProportional (Gemma 4): the first so many pairs of a whole head are rotated by the frequencies that
  /// they have in a head that is rotated as a whole, the others not at all.
  std::int64_t rotated_pairs = 0;

  bool operator==(const RotarySpec&) const = default;
};

}  // namespace lorikeet::nn
