#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Gemma 4's text models: Gemma 3's norms before and behind each block with plain weights, queries that
/// aren't scaled, a norm of the values, heads of another size in layers without a window, where keys may
/// serve as values, and a number that the stream behind each layer is multiplied by. The last layers may read
/// the keys and values of earlier ones, each layer an input beside the stream (E2B, E4B), and experts may
/// stand beside each MLP (26B-A4B). gemma4_text and gemma4_unified_text, whose class has neither such inputs
/// nor experts.
nn::CausalLMSpec gemma4_text_spec(const JsonView& config);
nn::CausalLMSpec gemma4_unified_text_spec(const JsonView& config);

/// The language model of a multimodal Gemma 4, whose settings are the file's `text_config`. Its names are
/// those of transformers' Gemma4ForConditionalGeneration, "model.language_model.layers.0...". Its towers are
/// left alone.
nn::CausalLMSpec gemma4_spec(const JsonView& config);
nn::CausalLMSpec gemma4_unified_spec(const JsonView& config);

}  // namespace lorikeet::models
