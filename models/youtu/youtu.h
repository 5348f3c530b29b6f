#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Youtu-LLM: DeepSeek-V3's latent attention beside Llama's MLPs. Source: transformers' modeling_youtu.py.
/// Throws Error for settings that aren't supported.
nn::CausalLMSpec youtu_spec(const JsonView& config);

}  // namespace lorikeet::models
