#include "models/minicpm3/minicpm3.h"

#include <cmath>

#include "models/latent_decoder.h"

namespace lorikeet::models {
namespace {

constexpr double kLargest = 1e6;  // far above any real multiplier

// A number whose absence is the class's default, and null another.
double read_multiplier(ConfigReader& config, const char* key, double absent, double null) {
  return config.is_null(key) ? null : config.positive_or(key, kLargest, absent);
}

}  // namespace

nn::CausalLMSpec minicpm3_spec(const JsonView& json) {
  ConfigReader config(json, "minicpm3");
  const LatentDecoder decoder = read_latent_decoder(config,
                                                    {.query_rank = 768,
                                                     .key_value_rank = 256,
                                                     .plain_dim = 64,
                                                     .rotary_dim = 32,
                                                     .value_dim = 0,
                                                     .interleaved = false,
                                                     .reads_interleaved = false},
                                                    {.tied_head = true});
  nn::CausalLMSpec spec = latent_decoder_spec(
      config, decoder, {.longrope_instead_of_yarn = true, .longrope_length_inside = true});
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
