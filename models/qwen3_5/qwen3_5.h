#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// The spec of a `model_type: qwen3_5_text` config.json: gated delta nets in most layers, in every fourth
/// attention with a gate behind it, norms of 1 + weight, rotation of a part of each head. Throws Error for
/// settings that change what the model computes and aren't read.
nn::CausalLMSpec qwen3_5_text_spec(const JsonView& json);

/// The same of a multimodal checkpoint, `model_type: qwen3_5`: its language model. The vision tower and the
/// layers that predict tokens further ahead (`mtp`) are left alone.
nn::CausalLMSpec qwen3_5_spec(const JsonView& json);

/// Both with experts and a shared one in place of each MLP, `model_type: qwen3_5_moe_text` and `qwen3_5_moe`.
nn::CausalLMSpec qwen3_5_moe_text_spec(const JsonView& json);
nn::CausalLMSpec qwen3_5_moe_spec(const JsonView& json);

}  // namespace lorikeet::models
