#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// DeepSeek-V2 and its Lite and Coder models: latent attention, in all but the first layers experts beside
/// shared ones, weighed by the softmax of their logits in fp32 as it is, chosen from all or from the groups
/// with the best single experts. Source: transformers' modeling_deepseek_v2.py. Throws Error for settings
/// that aren't supported.
nn::CausalLMSpec deepseek_v2_spec(const JsonView& config);

/// DeepSeek-V3, R1, Moonlight: the same attention, and experts chosen and weighed by sigmoids
/// (read_sigmoid_experts). Source: transformers' modeling_deepseek_v3.py. Throws Error for settings that
/// aren't supported.
nn::CausalLMSpec deepseek_v3_spec(const JsonView& config);

}  // namespace lorikeet::models
