#include "models/granite/granite.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec granite_spec(const JsonView& json) {
  constexpr double kLargest = 1e6;  // far above any real multiplier
  ConfigReader config(json, "granite");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kImplied);
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool attention_bias = config.flag("attention_bias", false), mlp_bias = config.flag("mlp_bias", false);
  const double attention = config.positive("attention_multiplier", kLargest);
  const double residual = config.positive("residual_multiplier", kLargest);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  spec.embedding_scale = config.positive("embedding_multiplier", kLargest);
  spec.head.scale = 1 / config.positive("logits_scaling", kLargest);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.qkv_bias = layer.attention.output_bias = attention_bias;
    layer.attention.options.scale = attention;
    layer.mlp.bias = mlp_bias;
    layer.residual_multiplier = residual;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
