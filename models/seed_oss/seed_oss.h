#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Seed-OSS: Llama's blocks with biases on q, k and v, and none on o unless `attention_out_bias` says so.
nn::CausalLMSpec seed_oss_spec(const JsonView& config);

}  // namespace lorikeet::models
