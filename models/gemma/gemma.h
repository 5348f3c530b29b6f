#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Gemma 1: Llama's blocks with 1 + weight norms, a scaled embedding and a GELU gate.
nn::CausalLMSpec gemma_spec(const JsonView& config);

/// Gemma 2: norms before and behind each block, soft caps, windows in every other layer.
nn::CausalLMSpec gemma2_spec(const JsonView& config);

/// Gemma 3, text models: norms of q and k by head, five layers with windows and a rotary base of their own to
/// one without.
nn::CausalLMSpec gemma3_text_spec(const JsonView& config);

/// The language model of a multimodal Gemma 3, whose settings are the file's `text_config`. Its names are
/// those of transformers' Gemma3ForConditionalGeneration, "model.language_model.layers.0..."; checkpoints
/// have them, or "language_model.model.layers.0..." as they were published. Its vision tower is left alone.
nn::CausalLMSpec gemma3_spec(const JsonView& config);

}  // namespace lorikeet::models
