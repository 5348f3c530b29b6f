#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Granite 3 (dense): Llama's blocks with multipliers of the embedding, the residual stream, the attention
/// scores and the logits.
nn::CausalLMSpec granite_spec(const JsonView& config);

/// Granite 4 (`granitemoehybrid`): Granite 3's with gate and up fused in shared_mlp.input_linear, with rotary
/// or none; with Mamba 2 layers in place of attention in most layers (4.0 H), and with experts beside that
/// MLP (4.0 H Tiny and Small).
nn::CausalLMSpec granitemoehybrid_spec(const JsonView& config);

}  // namespace lorikeet::models
