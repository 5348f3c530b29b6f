#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// StableLM 3B, StableLM 2 1.6B, Stable Code 3B: Llama's blocks with layer norms, a rotation of a part of
/// each head, and biases on q, k and v where `use_qkv_bias` says so; attention and MLP in parallel behind one
/// norm where `use_parallel_residual` does. The norms of each head that StableLM 2 12B has are refused.
/// Source: transformers' class.
nn::CausalLMSpec stablelm_spec(const JsonView& config);

}  // namespace lorikeet::models
