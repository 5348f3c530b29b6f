#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// MiniCPM3: latent attention whose rotated halves aren't interleaved, Llama's MLPs, and multipliers of the
/// embedding, of what blocks add to the stream and of the logits. Source: transformers' modeling_minicpm3.py.
/// Throws Error for settings that aren't supported.
nn::CausalLMSpec minicpm3_spec(const JsonView& config);

}  // namespace lorikeet::models
