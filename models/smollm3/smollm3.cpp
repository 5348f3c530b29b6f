#include "models/smollm3/smollm3.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// Whether each layer has rotary.
std::vector<bool> read_rotated(ConfigReader& config, const DecoderSizes& sizes) {
  std::vector<bool> rotated;
  if (config.has("no_rope_layers")) {
    for (const JsonView& item : of_each_layer(config, "no_rope_layers", sizes)) {
      const std::int64_t value = item.as_int();
      if (value != 0 && value != 1)
        config.fail("no_rope_layers", "expected 1 for rotary or 0 for none, got " + std::to_string(value));
      rotated.push_back(value == 1);
    }
    return rotated;
  }
  const std::int64_t interval = config.size_or("no_rope_layer_interval", kMostLayers, 4);
  for (std::int64_t i = 0; i < sizes.layers; ++i) rotated.push_back((i + 1) % interval != 0);
  return rotated;
}

}  // namespace

nn::CausalLMSpec smollm3_spec(const JsonView& json) {
  ConfigReader config(json, "smollm3");
  const DecoderSizes sizes =
      read_sizes(config, HeadDim::kOptional, {.tied_head = true, .padding_id = 128004});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool attention_bias = config.flag("attention_bias", false), mlp_bias = config.flag("mlp_bias", false);
  const std::vector<bool> rotated = read_rotated(config, sizes);
  config.require_flag("use_sliding_window", false, "no published SmolLM3 has windows");
  config.claim({"sliding_window"});
  for (const std::int64_t window : read_windows(config, sizes, [](std::int64_t) { return false; })) {
    if (window > 0) config.fail("layer_types", "has sliding_attention, but use_sliding_window is false");
  }
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim, {.absent_theta = 2e6}), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.qkv_bias = layer.attention.output_bias = attention_bias;
    layer.mlp.bias = mlp_bias;
    if (!rotated[static_cast<std::size_t>(i)]) layer.rotary = nn::LayerRotary::kNone;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
