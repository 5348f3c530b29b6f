#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Granite 3 (dense): Llama's blocks with multipliers of the embedding, the residual stream, the attention
/// scores and the logits.
nn::CausalLMSpec granite_spec(const JsonView& config);

}  // namespace lorikeet::models
