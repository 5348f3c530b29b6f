#include "models/falcon/falcon.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

struct FalconConfig : DecoderSizes {
  std::int64_t qkv_groups = 1;  // how often query_key_value repeats [queries | key | value]
  std::int64_t norms = 1;       // before the two blocks of a parallel layer
  bool parallel = true;
  bool bias = false;
  double eps = 0;
  ops::Activation activation = ops::Activation::kGelu;
};

// Which keys and values there are, and in which of the three orders they are stored.
void read_heads(ConfigReader& config, FalconConfig* c) {
  const bool grouped = config.flag("new_decoder_architecture", false);
  const bool multi_query = config.flag("multi_query", true);
  c->kv_heads = config.size_or("num_kv_heads", kLargestWidth, c->heads);
  if (!grouped && multi_query) c->kv_heads = 1;
  if (!grouped && !multi_query && c->kv_heads != c->heads) {
    config.fail("num_kv_heads", "expected as many as num_attention_heads " + std::to_string(c->heads) +
                                    " without multi_query and new_decoder_architecture, got " +
                                    std::to_string(c->kv_heads));
  }
  c->qkv_groups = c->kv_heads;

  c->parallel = config.flag("parallel_attn", true);
  if (grouped && !c->parallel)
    config.fail("parallel_attn", "false contradicts new_decoder_architecture, whose blocks are parallel");
  c->norms = config.size_or("num_ln_in_parallel_attn", 2, grouped ? 2 : 1);
  if (c->norms == 2 && !grouped) config.fail("num_ln_in_parallel_attn", "2 needs new_decoder_architecture");
}

FalconConfig read_falcon_config(ConfigReader& config) {
  config.require_flag("alibi", false, "a rotary Falcon was expected, ALiBi's biases are not built");
  FalconConfig c;
  c.vocab_size = config.size("vocab_size", kLargestVocabulary);
  c.hidden_size = config.size("hidden_size", kLargestWidth);
  c.intermediate_size = config.size_or("ffn_hidden_size", kLargestWidth, 4 * c.hidden_size);
  c.layers = config.size("num_hidden_layers", kMostLayers);
  c.heads = config.size("num_attention_heads", kLargestWidth);
  c.max_position = config.size_or("max_position_embeddings", kMostPositions, 2048);
  c.tied_head = config.flag("tie_word_embeddings", true);
  c.head_dim = implied_head_dim(config, c);
  read_heads(config, &c);
  require_consistent(config, c);
  c.bias = config.flag("bias", false);
  c.eps = config.has("layer_norm_epsilon") ? config.epsilon("layer_norm_epsilon") : 1e-5;
  c.activation =
      read_activation(config, "activation", "gelu", {"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"});
  return c;
}

nn::DecoderLayerSpec layer_spec(const FalconConfig& c, std::int64_t index) {
  const std::string prefix = "transformer.h." + std::to_string(index);
  const auto norm = [&](const std::string& name) { return layer_norm(prefix + name, c, c.eps); };
  nn::DecoderLayerSpec layer = llama_layer(c, c.eps, index, "transformer.h");
  layer.parallel = c.parallel;
  layer.attention_norm = norm(c.norms == 2 ? ".ln_attn" : ".input_layernorm");
  layer.mlp_norm.reset();
  if (c.norms == 2) layer.mlp_norm = norm(".ln_mlp");
  if (!c.parallel) layer.mlp_norm = norm(".post_attention_layernorm");
  layer.attention.prefix = prefix + ".self_attention";
  layer.attention.names.output = "dense";
  layer.attention.fused_qkv = nn::FusedModule{"query_key_value", c.qkv_groups};
  layer.attention.qkv_bias = layer.attention.output_bias = c.bias;
  layer.mlp.gated = false;
  layer.mlp.bias = c.bias;
  layer.mlp.activation = c.activation;
  layer.mlp.names = {.gate = "", .up = "dense_h_to_4h", .down = "dense_4h_to_h"};
  return layer;
}

}  // namespace

nn::CausalLMSpec falcon_spec(const JsonView& json) {
  ConfigReader config(json, "falcon");
  const FalconConfig c = read_falcon_config(config);
  const nn::RotarySpec rotary = read_rope(config, c.head_dim, {.absent_theta = 10000});
  config.finish();
  nn::CausalLMSpec spec = decoder_spec(c, rotary, c.eps);
  spec.embedding_name = "transformer.word_embeddings";
  spec.final_norm = layer_norm("transformer.ln_f", c, c.eps);
  for (std::int64_t i = 0; i < c.layers; ++i) spec.layers.push_back(layer_spec(c, i));
  return spec;
}

}  // namespace lorikeet::models
