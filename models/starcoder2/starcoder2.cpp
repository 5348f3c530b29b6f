#include "models/starcoder2/starcoder2.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec starcoder2_spec(const JsonView& json) {
  ConfigReader config(json, "starcoder2");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.kv_heads = 2, .tied_head = true});
  const double eps = config.epsilon("norm_epsilon");
  const ops::Activation activation = read_activation(config, "hidden_act", "gelu_pytorch_tanh",
                                                     {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"});
  // Published files have these two from a first version of the class, which had other kinds too.
  config.choice("norm_type", "layer_norm", {"layer_norm"});
  config.choice("mlp_type", "default", {"default"});
  const bool bias = config.flag("use_bias", true);
  const std::int64_t window = config.size_or("sliding_window", kMostPositions, 0);
  const nn::RotarySpec rotary = read_rope(config, sizes.head_dim, {.absent_theta = 10000});
  config.finish();
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  spec.final_norm = layer_norm("model.norm", sizes, eps);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention_norm = layer_norm(layer.attention_norm->name, sizes, eps);
    layer.mlp_norm = layer_norm(layer.mlp_norm->name, sizes, eps);
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.attention.options.window = window;
    layer.mlp.gated = false;
    layer.mlp.bias = bias;
    layer.mlp.activation = activation;
    layer.mlp.names = {.gate = "", .up = "c_fc", .down = "c_proj"};
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
