#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// The language models of multimodal Qwen checkpoints. Their names are those of transformers' classes
/// (Qwen2_5_VLForConditionalGeneration), "model.language_model.layers.0...". Their vision tower is left
/// alone. Multimodal rotary gives time, height and width of an image angles of their own; in text the three
/// positions are equal, which makes it the usual one.

/// Qwen2-VL and Qwen2.5-VL: Qwen2's decoder. Its settings are the file's `text_config`, or, as published, the
/// file's own; tensors are "model.layers.0..." as published.
nn::CausalLMSpec qwen2_vl_spec(const JsonView& config);
nn::CausalLMSpec qwen2_5_vl_spec(const JsonView& config);

/// Qwen3-VL (dense): Qwen3's decoder without windows, by the file's `text_config`.
nn::CausalLMSpec qwen3_vl_spec(const JsonView& config);

/// Qwen3-VL with experts in place of each MLP, which files stack transposed.
nn::CausalLMSpec qwen3_vl_moe_spec(const JsonView& config);

}  // namespace lorikeet::models
