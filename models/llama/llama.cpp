#include "models/llama/llama.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "models/llama/config.h"

namespace lorikeet::models {
namespace {

nn::DecoderLayerSpec layer_spec(const LlamaConfig& c, std::int64_t index) {
  const std::string prefix = "model.layers." + std::to_string(index);
  return {.index = index,
          .attention = {.prefix = prefix + ".self_attn",
                        .hidden_size = c.hidden_size,
                        .layout = {c.heads, c.kv_heads, c.head_dim},
                        .qkv_bias = c.attention_bias,
                        .output_bias = c.attention_bias,
                        .options = {.scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim))}},
          .mlp = {.prefix = prefix + ".mlp",
                  .hidden_size = c.hidden_size,
                  .intermediate_size = c.intermediate_size,
                  .bias = c.mlp_bias},
          .attention_norm = nn::NormSpec{prefix + ".input_layernorm", c.hidden_size, c.rms_norm_eps},
          .mlp_norm = nn::NormSpec{prefix + ".post_attention_layernorm", c.hidden_size, c.rms_norm_eps}};
}

std::int64_t layer_linear_parameters(const LlamaConfig& c) {
  const std::int64_t attention = c.hidden_size * c.head_dim * (2 * c.heads + 2 * c.kv_heads);
  return attention + 3 * c.hidden_size * c.intermediate_size;
}

// Linear scaling reaches beyond max_position_embeddings, which stays that of pretraining; llama3's is the
// scaled one already.
std::int64_t positions(const LlamaConfig& c) {
  if (c.rotary.scaling != nn::RotarySpec::Scaling::kLinear) return c.max_position;
  constexpr double kMost = 1e15;  // exact as a double, and far beyond any text
  const double scaled = static_cast<double>(c.max_position) * std::max(c.rotary.factor, 1.0);
  return static_cast<std::int64_t>(std::min(scaled, kMost));
}

}  // namespace

nn::CausalLMSpec llama_spec(const JsonView& config) {
  const LlamaConfig c = read_llama_config(config);
  nn::CausalLMSpec spec{.shape = {.layers = c.layers,
                                  .hidden_size = c.hidden_size,
                                  .heads = c.heads,
                                  .kv_heads = c.kv_heads,
                                  .head_dim = c.head_dim,
                                  .intermediate_size = c.intermediate_size,
                                  .vocab_size = c.vocab_size,
                                  .max_position = positions(c),
                                  .layer_linear_parameters = c.layers * layer_linear_parameters(c),
                                  .tied_head = c.tie_word_embeddings},
                        .rotary = c.rotary,
                        .final_norm = {"model.norm", c.hidden_size, c.rms_norm_eps},
                        .head = {.hidden_size = c.hidden_size, .vocab_size = c.vocab_size}};
  for (std::int64_t i = 0; i < c.layers; ++i) spec.layers.push_back(layer_spec(c, i));
  return spec;
}

}  // namespace lorikeet::models
