#include "models/gemma/gemma.h"

#include <cmath>

#include "models/decoder_spec.h"
#include "models/multimodal.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// What a published file leaves out; transformers has the same defaults.
const DecoderSizes kGemma3Defaults = {.vocab_size = 262208,
                                      .heads = 8,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .max_position = 131072,
                                      .tied_head = true,
                                      .padding_id = 0};

// Every norm's scale is 1 + weight, the embedding is multiplied by sqrt(hidden_size) in the compute dtype.
nn::CausalLMSpec gemma_base(const DecoderSizes& sizes, const nn::RotarySpec& rotary, double eps,
                            const std::string& model = "model") {
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps, model);
  spec.embedding_scale = std::sqrt(static_cast<double>(sizes.hidden_size));
  spec.embedding_scale_rounded = true;
  spec.final_norm.unit_offset = true;
  return spec;
}

// Gemma 2's and 3's layer: norms before and behind both blocks, queries scaled by a number of the file.
nn::DecoderLayerSpec sandwich_layer(const DecoderSizes& sizes, double eps, std::int64_t index,
                                    double query_scalar, const std::string& model = "model") {
  const std::string prefix = model + ".layers." + std::to_string(index);
  nn::DecoderLayerSpec layer = llama_layer(sizes, eps, index, model + ".layers");
  const auto norm = [&](const std::string& name) {
    return nn::NormSpec{prefix + name, sizes.hidden_size, eps, true};
  };
  layer.attention_norm = norm(".input_layernorm");
  layer.post_attention_norm = norm(".post_attention_layernorm");
  layer.mlp_norm = norm(".pre_feedforward_layernorm");
  layer.post_mlp_norm = norm(".post_feedforward_layernorm");
  layer.attention.options.scale = 1 / std::sqrt(query_scalar);
  layer.mlp.activation = ops::Activation::kGeluTanh;
  return layer;
}

// A soft cap, 0 for none.
double read_cap(ConfigReader& config, const char* key) {
  return config.has(key) ? config.positive(key, 1e6) : 0;
}

// Gemma 2's classes have caps where the key is absent.
double read_required_cap(ConfigReader& config, const char* key) {
  if (config.view().json().find(key) == nullptr)
    config.fail(key, "is missing; expected the cap, or null for none");
  return read_cap(config, key);
}

// Gemma 3 by the text model's settings; its weights' names begin with `model`.
nn::CausalLMSpec gemma3_decoder(const JsonView& json, const std::string& model) {
  ConfigReader config(json, "gemma3_text");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, kGemma3Defaults);
  const double eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-6;
  config.choice("hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"});
  const bool bias = config.flag("attention_bias", false);
  config.require_flag("use_bidirectional_attention", false, "a causal model was expected");
  const double query_scalar = config.positive_or("query_pre_attn_scalar", 1e9, 256);
  const std::int64_t pattern = config.size_or("sliding_window_pattern", kMostLayers, 6);
  const auto windows = read_windows(config, sizes, all_but_every(pattern));
  nn::CausalLMSpec spec = gemma_base(
      sizes, read_rope(config, sizes.head_dim, {.layer_type = "full_attention", .absent_theta = 1e6}), eps,
      model);
  spec.local_rotary = read_rope(config, sizes.head_dim,
                                {.theta = "rope_local_base_freq",
                                 .layer_type = "sliding_attention",
                                 .scaled = false,
                                 .absent_theta = 1e4});
  spec.head.soft_cap = read_cap(config, "final_logit_softcapping");
  config.finish();
  spec.shape.max_position = sizes.max_position;  // with linear scaling's factor in it already
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = sandwich_layer(sizes, eps, i, query_scalar, model);
    nn::AttentionSpec& attention = layer.attention;
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = head_norms(attention, eps, /*unit_offset=*/true);
    attention.options.window = windows[static_cast<std::size_t>(i)];
    layer.rotary = attention.options.window > 0 ? nn::LayerRotary::kLocal : nn::LayerRotary::kGlobal;
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace

nn::CausalLMSpec gemma_spec(const JsonView& json) {
  ConfigReader config(json, "gemma");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, {.tied_head = true, .padding_id = 0});
  const double eps = config.epsilon("rms_norm_eps");
  // "gelu" in the first files meant the formula with tanh, as transformers reads it.
  config.choice("hidden_act", "gelu_pytorch_tanh", {"gelu", "gelu_pytorch_tanh"});
  config.choice("hidden_activation", "gelu_pytorch_tanh", {"gelu", "gelu_pytorch_tanh"});
  const bool bias = config.flag("attention_bias", false);
  nn::CausalLMSpec spec = gemma_base(sizes, read_rope(config, sizes.head_dim), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention_norm->unit_offset = layer.mlp_norm->unit_offset = true;
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.mlp.activation = ops::Activation::kGeluTanh;
    spec.layers.push_back(layer);
  }
  return spec;
}

nn::CausalLMSpec gemma2_spec(const JsonView& json) {
  ConfigReader config(json, "gemma2");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, {.tied_head = true, .padding_id = 0});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"});
  const bool bias = config.flag("attention_bias", false);
  const double query_scalar = config.positive("query_pre_attn_scalar", 1e9);
  const double attention_cap = read_required_cap(config, "attn_logit_softcapping");
  const auto windows = read_windows(config, sizes, [](std::int64_t layer) { return layer % 2 == 0; });
  nn::CausalLMSpec spec = gemma_base(sizes, read_rope(config, sizes.head_dim), eps);
  spec.head.soft_cap = read_required_cap(config, "final_logit_softcapping");
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = sandwich_layer(sizes, eps, i, query_scalar);
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.attention.options.window = windows[static_cast<std::size_t>(i)];
    layer.attention.options.soft_cap = attention_cap;
    spec.layers.push_back(layer);
  }
  return spec;
}

nn::CausalLMSpec gemma3_text_spec(const JsonView& json) { return gemma3_decoder(json, "model"); }

nn::CausalLMSpec gemma3_spec(const JsonView& json) {
  ConfigReader config(json, "gemma3");
  config.claim({"text_config"});
  const JsonView text = json.at("text_config");
  ConfigReader text_config(text, "gemma3");
  text_config.choice("model_type", "gemma3_text", {"gemma3_text"});
  require_one_tie(config, text_config);  // transformers takes the whole file's
  config.finish();
  nn::CausalLMSpec spec = gemma3_decoder(text, "model.language_model");
  spec.checkpoint_names = llava_names();
  return spec;
}

}  // namespace lorikeet::models
