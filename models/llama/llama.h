#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// The blocks and names of a Llama model from its config.json. See read_llama_config for errors.
nn::CausalLMSpec llama_spec(const JsonView& config);

}  // namespace lorikeet::models
