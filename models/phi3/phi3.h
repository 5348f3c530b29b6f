#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Phi-3 mini and medium, Phi-3.5 mini, Phi-4, Phi-4-mini: Llama's blocks with fused qkv_proj and
/// gate_up_proj, longrope, a rotation of a part of each head, and a window where `sliding_window` has one.
nn::CausalLMSpec phi3_spec(const JsonView& config);

}  // namespace lorikeet::models
