#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// OLMoE: Llama's blocks with an RMS norm over all of q and one over all of k, and a mixture of experts in
/// place of each MLP.
nn::CausalLMSpec olmoe_spec(const JsonView& config);

}  // namespace lorikeet::models
