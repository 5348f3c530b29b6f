#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// GPT-NeoX and Pythia: layer norms with biases, q, k and v of each head side by side in query_key_value, an
/// MLP without gate, attention and MLP in parallel (or in sequence, as `use_parallel_residual` says).
nn::CausalLMSpec gpt_neox_spec(const JsonView& config);

}  // namespace lorikeet::models
