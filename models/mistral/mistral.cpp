#include "models/mistral/mistral.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec mistral_spec(const JsonView& json) {
  ConfigReader config(json, "mistral");
  const DecoderSizes sizes = read_sizes(config);
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  // The absent key means 4096 to transformers, null means none: too easily mistaken to guess.
  if (json.json().find("sliding_window") == nullptr)
    config.fail("sliding_window", "is missing; expected the size of the window, or null for none");
  const std::int64_t window = config.size_or("sliding_window", kMostPositions, 0);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.options.window = window;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
