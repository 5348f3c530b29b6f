#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Mistral 7B, Mistral-Nemo, and what else has model_type mistral: Llama's blocks with a window of
/// `sliding_window` keys in every layer, or none where that is null, and a head_dim of its own.
nn::CausalLMSpec mistral_spec(const JsonView& config);

/// Ministral 8B as transformers' class of that name has it: Mistral with windows by `layer_types`.
nn::CausalLMSpec ministral_spec(const JsonView& config);

/// Ministral 3, text models (Devstral 2): Mistral with YaRN, and queries that grow with their position.
nn::CausalLMSpec ministral3_spec(const JsonView& config);

/// The language model of a multimodal Mistral Small 3.1 or 3.2, or Ministral 3, whose settings are the file's
/// `text_config`. Its names are those of transformers' Mistral3ForConditionalGeneration
/// (models/multimodal.h).
nn::CausalLMSpec mistral3_spec(const JsonView& config);

}  // namespace lorikeet::models
