#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/causal_lm.h"

namespace lorikeet::nn {

/// Names and values.
using Architecture = std::vector<std::pair<std::string, std::string>>;

/// All of a spec that decides a model's numbers beside its weights: sizes, norms' eps, rotary settings,
/// activations, scales, the order of rows in fused modules, in a fixed order. Specs give equal lists exactly
/// where they compute the same from the same tensors, however their config.json spells it; names of weights
/// and limits of lengths are left out. What a spec leaves off (a soft cap of 0, no bias, an order of rows
/// that permutes nothing) is left out too, so that lists of before an option came into being stay equal.
Architecture architecture(const CausalLMSpec& spec);

}  // namespace lorikeet::nn
