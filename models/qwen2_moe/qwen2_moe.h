#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Qwen2 with a mixture of experts and a shared expert in place of each MLP.
nn::CausalLMSpec qwen2_moe_spec(const JsonView& config);

}  // namespace lorikeet::models
