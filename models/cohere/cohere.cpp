#include "models/cohere/cohere.h"

#include <vector>

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// What both generations have. `windows`: of cohere2, one for each layer; a layer with 0 has no rotary. Empty
// for cohere, where all layers have it.
nn::CausalLMSpec read_cohere(ConfigReader& config, const DecoderSizes& sizes,
                             const std::vector<std::int64_t>& windows, double absent_theta) {
  const double eps = config.has("layer_norm_eps") ? config.epsilon("layer_norm_eps") : 1e-5;
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  nn::CausalLMSpec spec =
      decoder_spec(sizes, read_rope(config, sizes.head_dim, {.absent_theta = absent_theta}), eps);
  spec.head.scale = config.positive_or("logit_scale", 1e6, 0.0625);
  config.finish();
  spec.final_norm = layer_norm("model.norm", sizes, eps, /*bias=*/false);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.parallel = true;
    layer.attention_norm = layer_norm(layer.attention_norm->name, sizes, eps, /*bias=*/false);
    layer.mlp_norm.reset();
    layer.attention.layout.interleaved = true;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    if (!windows.empty()) {
      layer.attention.options.window = windows[static_cast<std::size_t>(i)];
      if (layer.attention.options.window == 0) layer.rotary = nn::LayerRotary::kNone;
    }
    spec.layers.push_back(layer);
  }
  return spec;
}

DecoderSizes read_cohere_sizes(ConfigReader& config) {
  return read_sizes(config, HeadDim::kImplied, {.tied_head = true, .padding_id = 0});
}

}  // namespace

nn::CausalLMSpec cohere_spec(const JsonView& json) {
  ConfigReader config(json, "cohere");
  config.require_flag("use_qk_norm", false, "norms of q and k with weights of their own for each head");
  return read_cohere(config, read_cohere_sizes(config), {}, 5e5);
}

nn::CausalLMSpec cohere2_spec(const JsonView& json) {
  ConfigReader config(json, "cohere2");
  const DecoderSizes sizes = read_cohere_sizes(config);
  const std::int64_t pattern = config.size_or("sliding_window_pattern", kMostLayers, 4);
  const auto windows = read_windows(config, sizes, all_but_every(pattern));
  return read_cohere(config, sizes, windows, 1e4);
}

}  // namespace lorikeet::models
