#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Mixtral: Mistral's blocks with a mixture of experts in place of each MLP.
nn::CausalLMSpec mixtral_spec(const JsonView& config);

}  // namespace lorikeet::models
