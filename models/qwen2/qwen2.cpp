#include "models/qwen2/qwen2.h"

#include <algorithm>

#include "models/decoder_spec.h"

namespace lorikeet::models {

std::vector<std::int64_t> read_qwen_windows(ConfigReader& config, const DecoderSizes& sizes) {
  const bool used = config.flag("use_sliding_window", false);
  if (!used) {
    const auto windows = config.has("layer_types")
                             ? read_windows(config, sizes, {})
                             : std::vector<std::int64_t>(static_cast<std::size_t>(sizes.layers), 0);
    config.claim({"sliding_window", "max_window_layers"});
    if (std::any_of(windows.begin(), windows.end(), [](std::int64_t window) { return window > 0; }))
      config.fail("layer_types", "has sliding_attention, but use_sliding_window is false");
    return windows;
  }
  std::int64_t first = 0;
  if (!config.has("layer_types")) {
    first = config.view().at("max_window_layers").as_int();
    if (first < 0) config.fail("max_window_layers", "expected an integer not below 0");
  }
  return read_windows(config, sizes, [first](std::int64_t layer) { return layer >= first; });
}

nn::CausalLMSpec qwen2_decoder(ConfigReader& config, const DecoderSizes& sizes,
                               const std::vector<std::int64_t>& windows, const RopeKeys& rope,
                               const std::string& model) {
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim, rope), eps, model);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i, model + ".layers");
    layer.attention.qkv_bias = true;
    layer.attention.options.window = windows[static_cast<std::size_t>(i)];
    spec.layers.push_back(layer);
  }
  return spec;
}

nn::CausalLMSpec qwen2_spec(const JsonView& json) {
  ConfigReader config(json, "qwen2");
  const DecoderSizes sizes = read_sizes(config);
  return qwen2_decoder(config, sizes, read_qwen_windows(config, sizes), {}, "model");
}

}  // namespace lorikeet::models
