#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// SmolLM3: Llama's blocks, of which `no_rope_layers` (by default each fourth) have no rotary.
nn::CausalLMSpec smollm3_spec(const JsonView& config);

}  // namespace lorikeet::models
