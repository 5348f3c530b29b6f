#include "models/olmo2/olmo2.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec olmo2_spec(const JsonView& json) {
  ConfigReader config(json, "olmo2");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.padding_id = 1});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention_norm.reset();
    layer.mlp_norm.reset();
    layer.post_attention_norm = nn::NormSpec{prefix + ".post_attention_layernorm", sizes.hidden_size, eps};
    layer.post_mlp_norm = nn::NormSpec{prefix + ".post_feedforward_layernorm", sizes.hidden_size, eps};
    nn::AttentionSpec& attention = layer.attention;
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = nn::QkNormSpec{{attention.prefix + ".q_norm", sizes.heads * sizes.head_dim, eps},
                                       {attention.prefix + ".k_norm", sizes.kv_heads * sizes.head_dim, eps}};
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
