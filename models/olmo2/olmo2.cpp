#include "models/olmo2/olmo2.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

nn::DecoderLayerSpec olmo_layer(const DecoderSizes& sizes, double eps, bool bias, std::int64_t index) {
  nn::DecoderLayerSpec layer = post_norm_layer(sizes, eps, index);
  nn::AttentionSpec& attention = layer.attention;
  attention.qkv_bias = attention.output_bias = bias;
  attention.qk_norm = whole_norms(attention, eps);
  return layer;
}

}  // namespace

nn::CausalLMSpec olmo2_spec(const JsonView& json) {
  ConfigReader config(json, "olmo2");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.padding_id = 1});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) spec.layers.push_back(olmo_layer(sizes, eps, bias, i));
  return spec;
}

nn::CausalLMSpec olmo3_spec(const JsonView& json) {
  ConfigReader config(json, "olmo3");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.padding_id = 1});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  const auto windows = read_windows(config, sizes, all_but_every(4));
  nn::CausalLMSpec spec = decoder_spec(
      sizes, read_rope(config, sizes.head_dim, {.layer_type = "full_attention", .absent_theta = 5e5}), eps);
  spec.local_rotary = read_rope(config, sizes.head_dim,
                                {.layer_type = "sliding_attention", .scaled = false, .absent_theta = 5e5});
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = olmo_layer(sizes, eps, bias, i);
    layer.attention.options.window = windows[static_cast<std::size_t>(i)];
    layer.rotary = layer.attention.options.window > 0 ? nn::LayerRotary::kLocal : nn::LayerRotary::kGlobal;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
