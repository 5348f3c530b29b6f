#pragma once

#include <cstdint>

#include "models/config_reader.h"
#include "models/rope.h"
#include "models/sizes.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Sizes of latents and heads where config.json hasn't their keys.
struct LatentDefaults {
  std::int64_t query_rank, key_value_rank, plain_dim, rotary_dim;
  std::int64_t value_dim;  ///< 0: hidden_size / heads
  bool interleaved = true;
  bool reads_interleaved = true;  ///< `rope_interleave` is known
};

/// A decoder whose layers have latent attention.
struct LatentDecoder {
  DecoderSizes sizes;
  nn::LatentSpec latent;
};

/// Reads what read_sizes does, q_lora_rank (null: queries have no latent), kv_lora_rank, qk_nope_head_dim,
/// qk_rope_head_dim, v_head_dim and `rope_interleave`. Throws Error naming the key for what doesn't fit.
LatentDecoder read_latent_decoder(ConfigReader& config, const LatentDefaults& defaults,
                                  const DecoderSizes& sizes = {});

/// Llama's layers with latent attention, whose scores yarn may scale; reads the rotary settings,
/// rms_norm_eps, hidden_act and attention_bias, the bias of the modules that make latents and of the output.
/// Source: transformers' modeling_deepseek_v3.py.
nn::CausalLMSpec latent_decoder_spec(ConfigReader& config, const LatentDecoder& decoder,
                                     const RopeKeys& rope = {});

}  // namespace lorikeet::models
