#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Qwen3 (dense): Llama's blocks with an RMS norm over each head of q and k, and a head_dim of its own.
nn::CausalLMSpec qwen3_spec(const JsonView& config);

}  // namespace lorikeet::models
