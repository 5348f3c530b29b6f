#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Qwen3-Next: the decoder of Qwen 3.5 (qwen3_5/delta_decoder.h) with experts and a shared one in place of
/// each MLP, and delta nets whose projections are fused. The layers that predict tokens further ahead (`mtp`)
/// are left alone.
nn::CausalLMSpec qwen3_next_spec(const JsonView& config);

}  // namespace lorikeet::models
