#include "models/qwen3/qwen3.h"

#include "models/decoder_spec.h"
#include "models/qwen2/qwen2.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec qwen3_spec(const JsonView& json) {
  ConfigReader config(json, "qwen3");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired);
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  const auto windows = read_qwen_windows(config, sizes);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    nn::AttentionSpec& attention = layer.attention;
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = nn::QkNormSpec{{attention.prefix + ".q_norm", sizes.head_dim, eps},
                                       {attention.prefix + ".k_norm", sizes.head_dim, eps}};
    attention.options.window = windows[static_cast<std::size_t>(i)];
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
