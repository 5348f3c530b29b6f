#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// gpt-oss (`gpt_oss`): attention with learned sinks, windows in every other layer, biases everywhere, and
/// experts whose gate and up are clamped. Its files stack the experts' matrices, in mxfp4 or as numbers.
/// Throws Error naming the key for what doesn't fit.
nn::CausalLMSpec gpt_oss_spec(const JsonView& config);

}  // namespace lorikeet::models
