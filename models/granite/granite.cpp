#include "models/granite/granite.h"

#include "base/strings.h"
#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

constexpr double kLargest = 1e6;  // far above any real multiplier

// What both generations have: multipliers, and blocks with the names of Llama's.
nn::CausalLMSpec read_granite(ConfigReader& config, const DecoderSizes& sizes, const nn::RotarySpec& rotary,
                              bool mlp_bias) {
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool attention_bias = config.flag("attention_bias", false);
  const double attention = config.positive("attention_multiplier", kLargest);
  const double residual = config.positive("residual_multiplier", kLargest);
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  spec.embedding_scale = config.positive("embedding_multiplier", kLargest);
  spec.head.scale = 1 / config.positive("logits_scaling", kLargest);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.qkv_bias = layer.attention.output_bias = attention_bias;
    layer.attention.options.scale = attention;
    layer.mlp.bias = mlp_bias;
    layer.residual_multiplier = residual;
    spec.layers.push_back(layer);
  }
  return spec;
}

// Throws unless each layer has attention. transformers takes Mamba layers where the file has no list.
void require_attention(ConfigReader& config, const DecoderSizes& sizes) {
  constexpr const char* kKey = "layer_types";
  // Another name of the list in transformers, which prefers it.
  if (config.has("layers_block_type"))
    config.fail("layers_block_type", "is not read; give the list as layer_types");
  if (!config.has(kKey)) config.fail(kKey, "is missing; expected 'attention' for each layer");
  for (const JsonView& type : of_each_layer(config, kKey, sizes)) {
    const std::string& name = type.as_string();
    if (name != "attention" && name != "full_attention") {
      config.fail(kKey, "expected 'attention' for each layer, got '" + escape_control(name) +
                            "'; Mamba layers (Granite 4.0 H) are not built");
    }
  }
}

}  // namespace

nn::CausalLMSpec granite_spec(const JsonView& json) {
  ConfigReader config(json, "granite");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kImplied);
  nn::CausalLMSpec spec =
      read_granite(config, sizes, read_rope(config, sizes.head_dim), config.flag("mlp_bias", false));
  config.finish();
  return spec;
}

nn::CausalLMSpec granitemoehybrid_spec(const JsonView& json) {
  ConfigReader config(json, "granitemoehybrid");
  config.claim({"num_local_experts"});
  if (!json.has("num_local_experts") || json.at("num_local_experts").as_int() != 0)
    config.fail("num_local_experts", "expected 0: experts are not built");
  DecoderSizes sizes = read_sizes(config, HeadDim::kImplied);
  require_attention(config, sizes);
  // The width of experts is `intermediate_size`; what every token passes has its own.
  sizes.intermediate_size = config.size("shared_intermediate_size", kLargestWidth);
  const bool rotary = config.choice("position_embedding_type", "nope", {"rope", "nope"}) == "rope";
  nn::CausalLMSpec spec = read_granite(
      config, sizes, rotary ? read_rope(config, sizes.head_dim) : nn::RotarySpec{}, /*mlp_bias=*/false);
  if (!rotary) {
    config.claim({"partial_rotary_factor"});
    spec.rotary.reset();
  }
  config.finish();
  for (nn::DecoderLayerSpec& layer : spec.layers) {
    layer.mlp.prefix = "model.layers." + std::to_string(layer.index) + ".shared_mlp";
    layer.mlp.fused_gate_up = nn::FusedModule{"input_linear"};
    layer.mlp.names.down = "output_linear";
    if (!rotary) layer.rotary = nn::LayerRotary::kNone;
  }
  return spec;
}

}  // namespace lorikeet::models
