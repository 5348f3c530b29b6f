#include "models/exaone4/exaone4.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// `layer_types`, or else a layer without a window in every so many. Published files have "LLLG" as their
// pattern, and `layer_types` beside it.
std::vector<std::int64_t> read_exaone_windows(ConfigReader& config, const DecoderSizes& sizes,
                                              bool windowed) {
  std::int64_t pattern = 1;
  if (windowed && !config.has("layer_types")) pattern = config.size("sliding_window_pattern", kMostLayers);
  return read_windows(config, sizes, all_but_every(pattern));
}

}  // namespace

nn::CausalLMSpec exaone4_spec(const JsonView& json) {
  ConfigReader config(json, "exaone4");
  const DecoderSizes sizes = read_sizes(config);
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool windowed = read_whether_windowed(config);  // null: rotary in every layer
  const auto windows = read_exaone_windows(config, sizes, windowed);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = post_norm_layer(sizes, eps, i);
    nn::AttentionSpec& attention = layer.attention;
    attention.qk_norm = head_norms(attention, eps);
    attention.options.window = windows[static_cast<std::size_t>(i)];
    if (windowed && attention.options.window == 0) layer.rotary = nn::LayerRotary::kNone;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
