#include "models/llama/llama.h"

#include "models/decoder_spec.h"
#include "models/llama/config.h"

namespace lorikeet::models {

nn::CausalLMSpec llama_spec(const JsonView& json) {
  const LlamaConfig c = read_llama_config(json);
  nn::CausalLMSpec spec = decoder_spec(c, c.rotary, c.rms_norm_eps);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(c, c.rms_norm_eps, i);
    layer.attention.qkv_bias = layer.attention.output_bias = c.attention_bias;
    layer.mlp.bias = c.mlp_bias;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
