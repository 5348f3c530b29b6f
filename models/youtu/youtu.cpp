#include "models/youtu/youtu.h"

#include "models/latent_decoder.h"

namespace lorikeet::models {

nn::CausalLMSpec youtu_spec(const JsonView& json) {
  ConfigReader config(json, "youtu");
  const LatentDecoder decoder = read_latent_decoder(
      config,
      {.query_rank = 1536, .key_value_rank = 512, .plain_dim = 128, .rotary_dim = 64, .value_dim = 128},
      {.intermediate_size = 6144, .tied_head = true});
  nn::CausalLMSpec spec = latent_decoder_spec(config, decoder);
  config.finish();
  return spec;
}

}  // namespace lorikeet::models
