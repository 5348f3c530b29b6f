#include "models/qwen3/qwen3.h"

#include "models/decoder_spec.h"
#include "models/qwen2/qwen2.h"

namespace lorikeet::models {

nn::CausalLMSpec qwen3_decoder(ConfigReader& config, const DecoderSizes& sizes,
                               const std::vector<std::int64_t>& windows, const RopeKeys& rope,
                               const std::string& model) {
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim, rope), eps, model);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i, model + ".layers");
    nn::AttentionSpec& attention = layer.attention;
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = head_norms(attention, eps);
    attention.options.window = windows[static_cast<std::size_t>(i)];
    spec.layers.push_back(layer);
  }
  return spec;
}

nn::CausalLMSpec qwen3_spec(const JsonView& json) {
  ConfigReader config(json, "qwen3");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired);
  return qwen3_decoder(config, sizes, read_qwen_windows(config, sizes), {}, "model");
}

}  // namespace lorikeet::models
