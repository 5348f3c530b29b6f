#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Mistral 7B, Mistral-Nemo, and what else has model_type mistral: Llama's blocks with a window of
/// `sliding_window` keys in every layer, or none where that is null, and a head_dim of its own.
nn::CausalLMSpec mistral_spec(const JsonView& config);

}  // namespace lorikeet::models
