#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// GLM-4.5 and later mixtures of the family: Llama's blocks with partial rotary and biases on q, k and v, in
/// all but the first layers experts beside a shared one, chosen and weighed by the sigmoids of the router's
/// logits, with a bias for the choice, which groups may limit. Source: transformers' modeling_glm4_moe.py.
/// Throws Error for settings that aren't supported.
nn::CausalLMSpec glm4_moe_spec(const JsonView& config);

/// GLM-4.7-Flash: DeepSeek-V3's latent attention, and such experts in all but the first layer or in those
/// that `mlp_layer_types` names. Source: transformers' modeling_glm4_moe_lite.py. Throws Error for settings
/// that aren't supported.
nn::CausalLMSpec glm4_moe_lite_spec(const JsonView& config);

}  // namespace lorikeet::models
