#pragma once

#include "base/json.h"
#include "models/sizes.h"
#include "nn/rotary_spec.h"

namespace lorikeet::models {

/// The numbers of a Llama-family config.json (Llama 2 to 3.3, TinyLlama, SmolLM2), checked.
struct LlamaConfig : DecoderSizes {
  double rms_norm_eps;
  bool attention_bias;
  bool mlp_bias;
  nn::RotarySpec rotary;
};

/// Reads both layouts of the rotary settings: `rope_theta` and `rope_scaling` at top level (transformers 4)
/// and `rope_parameters` (transformers 5). Throws Error naming the key for missing or contradicting numbers
/// and for what isn't supported; nothing falls back to a default that the file does not imply.
LlamaConfig read_llama_config(const JsonView& config);

}  // namespace lorikeet::models
