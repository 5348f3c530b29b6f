#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Bamba (IBM, with Princeton, CMU and UIUC): Llama's blocks with half of each head rotated, and Mamba 2
/// layers in place of attention in all layers but those of `attn_layer_indices`.
nn::CausalLMSpec bamba_spec(const JsonView& config);

}  // namespace lorikeet::models
