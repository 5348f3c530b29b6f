#include "models/ernie4_5/ernie4_5.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec ernie4_5_spec(const JsonView& json) {
  ConfigReader config(json, "ernie4_5");
  const DecoderSizes sizes =
      read_sizes(config, HeadDim::kRequired, {.head_dim = 128, .tied_head = true, .padding_id = 0});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("use_bias", false);
  nn::CausalLMSpec spec =
      decoder_spec(sizes, read_rope(config, sizes.head_dim, {.absent_theta = 500000}), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.layout.interleaved = true;
    layer.attention.qkv_bias = layer.attention.output_bias = layer.mlp.bias = bias;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
