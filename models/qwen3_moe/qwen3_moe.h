#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Qwen3 with a mixture of experts in place of each MLP.
nn::CausalLMSpec qwen3_moe_spec(const JsonView& config);

}  // namespace lorikeet::models
