#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// ERNIE 4.5 (dense): Llama's blocks with a rotation of neighbours, and biases everywhere or nowhere.
nn::CausalLMSpec ernie4_5_spec(const JsonView& config);

/// The same with experts in place of the MLPs of some layers, beside shared ones: softmax of the router's
/// logits, with a bias for the choice. Source: transformers' modeling_ernie4_5_moe.py.
nn::CausalLMSpec ernie4_5_moe_spec(const JsonView& config);

}  // namespace lorikeet::models
