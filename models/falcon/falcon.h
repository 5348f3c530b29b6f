#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Falcon 7B, 40B, 180B and Falcon-2 11B: layer norms with biases, one query_key_value in one of three
/// orders, an MLP without gate, attention and MLP in parallel behind one norm or two. ALiBi is refused.
nn::CausalLMSpec falcon_spec(const JsonView& config);

}  // namespace lorikeet::models
