#include "models/stablelm/stablelm.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec stablelm_spec(const JsonView& json) {
  ConfigReader config(json, "stablelm");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kImplied, {.kv_heads = 32});
  const double eps = config.epsilon("layer_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  config.require_flag("qk_layernorm", false,
                      "layer norms of queries and keys with a weight for each head are not built");
  const bool qkv_bias = config.flag("use_qkv_bias", false);
  const bool parallel = config.flag("use_parallel_residual", false);
  const nn::RotarySpec rotary = read_rope(
      config, sizes.head_dim, {.partial_allowed = true, .absent_theta = 10000, .absent_partial = 0.25});
  config.finish();
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  spec.final_norm = layer_norm("model.norm", sizes, eps);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.parallel = parallel;
    layer.attention_norm = layer_norm(layer.attention_norm->name, sizes, eps);
    if (parallel) {
      layer.mlp_norm.reset();
    } else {
      layer.mlp_norm = layer_norm(layer.mlp_norm->name, sizes, eps);
    }
    layer.attention.qkv_bias = qkv_bias;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
