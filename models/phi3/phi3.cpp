#include "models/phi3/phi3.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec phi3_spec(const JsonView& json) {
  ConfigReader config(json, "phi3");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.padding_id = 32000});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const std::int64_t window = config.size_or("sliding_window", kMostPositions, 0);
  const nn::RotarySpec rotary =
      read_rope(config, sizes.head_dim, {.partial_allowed = true, .longrope_instead_of_yarn = true});
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.fused_qkv = nn::FusedModule{"qkv_proj"};
    layer.attention.options.window = window;
    layer.mlp.fused_gate_up = nn::FusedModule{"gate_up_proj"};
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
