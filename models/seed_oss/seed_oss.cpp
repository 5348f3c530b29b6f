#include "models/seed_oss/seed_oss.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec seed_oss_spec(const JsonView& json) {
  ConfigReader config(json, "seed_oss");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, {.padding_id = 1});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", true), mlp_bias = config.flag("mlp_bias", false);
  const bool output_bias = config.flag("attention_out_bias", false);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.qkv_bias = bias;
    layer.attention.output_bias = output_bias;
    layer.mlp.bias = mlp_bias;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
