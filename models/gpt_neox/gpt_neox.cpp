#include "models/gpt_neox/gpt_neox.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec gpt_neox_spec(const JsonView& json) {
  ConfigReader config(json, "gpt_neox");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kImplied);
  if (sizes.kv_heads != sizes.heads)
    config.fail("num_key_value_heads",
                "expected as many as num_attention_heads for a model of the family gpt_neox");
  const double eps = config.epsilon("layer_norm_eps");
  const ops::Activation activation =
      read_activation(config, "hidden_act", "gelu", {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"});
  const bool parallel = config.flag("use_parallel_residual", true);
  const bool attention_bias = config.flag("attention_bias", true);
  const nn::RotarySpec rotary = read_rope(config, sizes.head_dim,
                                          {.theta = "rotary_emb_base",
                                           .partial = "rotary_pct",
                                           .also_theta = "rope_theta",
                                           .also_partial = "partial_rotary_factor",
                                           .partial_allowed = true,
                                           .absent_theta = 10000,
                                           .absent_partial = 0.25});
  config.finish();
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  spec.embedding_name = "gpt_neox.embed_in";
  spec.padding_id = -1;  // transformers gives this family's embedding no padding_idx
  spec.final_norm = layer_norm("gpt_neox.final_layer_norm", sizes, eps);
  spec.checkpoint_names = {
      .prefixes = {{"lm_head.", "embed_out."}}};  // transformers 5 and PEFT on it say lm_head
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string prefix = "gpt_neox.layers." + std::to_string(i);
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i, "gpt_neox.layers");
    layer.parallel = parallel;
    layer.attention_norm = layer_norm(layer.attention_norm->name, sizes, eps);
    layer.mlp_norm = layer_norm(layer.mlp_norm->name, sizes, eps);
    layer.attention.prefix = prefix + ".attention";
    layer.attention.names.output = "dense";
    layer.attention.fused_qkv = nn::FusedModule{"query_key_value", sizes.heads};
    layer.attention.qkv_bias = layer.attention.output_bias = attention_bias;
    layer.mlp.gated = false;
    layer.mlp.bias = true;
    layer.mlp.activation = activation;
    layer.mlp.names = {.gate = "", .up = "dense_h_to_4h", .down = "dense_4h_to_h"};
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
