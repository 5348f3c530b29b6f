#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// ERNIE 4.5 (dense): Llama's blocks with a rotation of neighbours, and biases everywhere or nowhere.
nn::CausalLMSpec ernie4_5_spec(const JsonView& config);

}  // namespace lorikeet::models
