#include "models/latent_decoder.h"

#include <cmath>
#include <string>

#include "models/decoder_spec.h"

namespace lorikeet::models {

LatentDecoder read_latent_decoder(ConfigReader& config, const LatentDefaults& defaults,
                                  const DecoderSizes& sizes) {
  LatentDecoder decoder;
  nn::LatentSpec& latent = decoder.latent;
  ops::LatentLayout& layout = latent.layout;
  layout.rotary_dim = config.size_or("qk_rope_head_dim", kLargestWidth, defaults.rotary_dim);
  if (layout.rotary_dim % 2 != 0)
    config.fail("qk_rope_head_dim", "expected an even number, got " + std::to_string(layout.rotary_dim));
  layout.plain_dim = config.size_or("qk_nope_head_dim", kLargestWidth, defaults.plain_dim);
  // In transformers head_dim is that of the rotary table: another name of qk_rope_head_dim, or made of it.
  DecoderSizes absent = sizes;
  absent.head_dim = layout.rotary_dim;
  decoder.sizes = read_sizes(config, HeadDim::kOptional, absent);
  if (decoder.sizes.head_dim != layout.rotary_dim) {
    config.fail("head_dim", "expected qk_rope_head_dim, " + std::to_string(layout.rotary_dim) + ", got " +
                                std::to_string(decoder.sizes.head_dim));
  }
  if (decoder.sizes.kv_heads != decoder.sizes.heads) {
    config.fail("num_key_value_heads", "expected num_attention_heads, " +
                                           std::to_string(decoder.sizes.heads) + ", got " +
                                           std::to_string(decoder.sizes.kv_heads));
  }
  layout.heads = decoder.sizes.heads;
  layout.value_dim = config.has("v_head_dim") ? config.size("v_head_dim", kLargestWidth)
                     : defaults.value_dim > 0 ? defaults.value_dim
                                              : implied_head_dim(config, decoder.sizes);
  layout.interleaved = defaults.reads_interleaved ? config.flag("rope_interleave", defaults.interleaved)
                                                  : defaults.interleaved;
  // Null: queries have no latent.
  if (!config.is_null("q_lora_rank"))
    latent.query_rank = config.size_or("q_lora_rank", kLargestWidth, defaults.query_rank);
  latent.key_value_rank = config.size_or("kv_lora_rank", kLargestWidth, defaults.key_value_rank);
  if (layout.query_width() + layout.key_value_width() > kLargestWidth) {
    config.contradiction("num_attention_heads " + std::to_string(layout.heads) +
                         " of these sizes have rows over " + std::to_string(kLargestWidth) + " wide");
  }
  decoder.sizes.head_dim = layout.head_dim();
  return decoder;
}

nn::CausalLMSpec latent_decoder_spec(ConfigReader& config, const LatentDecoder& decoder,
                                     const RopeKeys& rope) {
  const ops::LatentLayout& layout = decoder.latent.layout;
  const nn::RotarySpec rotary = read_rope(config, layout.rotary_dim, rope);
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  if (bias && decoder.latent.query_rank == 0) {
    config.fail("attention_bias",
                "expected false without q_lora_rank: queries then have no bias where keys and values have");
  }
  const double scale = yarn_score_factor(config, rotary) / std::sqrt(static_cast<double>(layout.key_dim()));
  nn::CausalLMSpec spec = decoder_spec(decoder.sizes, rotary, eps);
  for (std::int64_t i = 0; i < decoder.sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(decoder.sizes, eps, i);
    layer.attention.layout = layout.padded();
    layer.attention.latent = decoder.latent;
    layer.attention.options.scale = scale;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
