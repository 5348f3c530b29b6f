#include "models/minicpm3/minicpm3.h"

#include <cmath>

#include "models/latent_decoder.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

constexpr double kLargest = 1e6;  // far above any real multiplier

// A number whose absence is the class's default, and null another.
double read_multiplier(ConfigReader& config, const char* key, double absent, double null) {
  if (config.has(key)) return config.positive(key, kLargest);
  return config.view().json().find(key) != nullptr ? null : absent;
}

}  // namespace

nn::CausalLMSpec minicpm3_spec(const JsonView& json) {
  ConfigReader config(json, "minicpm3");
  LatentDecoder decoder = read_latent_decoder(config,
                                              {.query_rank = 768,
                                               .key_value_rank = 256,
                                               .plain_dim = 64,
                                               .rotary_dim = 32,
                                               .value_dim = 0,
                                               .interleaved = false,
                                               .reads_interleaved = false},
                                              {.tied_head = true});
  decoder.rotary = read_rope(config, decoder.latent.layout.rotary_dim,
                             {.longrope_instead_of_yarn = true, .longrope_length_inside = true});
  nn::CausalLMSpec spec = latent_decoder_spec(config, decoder);
  const bool mlp_bias = config.flag("mlp_bias", false);
  const auto layers = static_cast<double>(decoder.sizes.layers);
  const auto hidden = static_cast<double>(decoder.sizes.hidden_size);
  const double depth = read_multiplier(config, "scale_depth", 1.4, std::sqrt(layers));
  spec.embedding_scale = read_multiplier(config, "scale_emb", 12, 12);
  spec.head.scale = read_multiplier(config, "dim_model_base", 256, hidden) / hidden;
  config.finish();
  for (nn::DecoderLayerSpec& layer : spec.layers) {
    layer.mlp.bias = mlp_bias;
    layer.residual_multiplier = depth / std::sqrt(layers);
  }
  return spec;
}

}  // namespace lorikeet::models
