#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// GLM-4-9B as transformers has it (`glm`): Llama's blocks with a fused gate_up_proj, biases on q, k and v,
/// and a rotation of neighbours in half of each head.
nn::CausalLMSpec glm_spec(const JsonView& config);

/// GLM-4-0414 and GLM-Z1 (`glm4`): the same with norms behind the blocks too.
nn::CausalLMSpec glm4_spec(const JsonView& config);

}  // namespace lorikeet::models
