#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// StarCoder2: Llama's blocks with layer norms, biases everywhere, an MLP without gate (c_fc, c_proj), and a
/// window in every layer where `sliding_window` has one. Source: "StarCoder 2 and The Stack v2"
/// (arXiv:2402.19173), as transformers' class.
nn::CausalLMSpec starcoder2_spec(const JsonView& config);

}  // namespace lorikeet::models
