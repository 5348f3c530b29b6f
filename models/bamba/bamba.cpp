#include "models/bamba/bamba.h"

#include <string>
#include <vector>

#include "models/decoder_spec.h"
#include "models/mamba.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

std::vector<bool> read_attending(ConfigReader& config, const DecoderSizes& sizes) {
  constexpr const char* kKey = "attn_layer_indices";
  std::vector<bool> attends(static_cast<std::size_t>(sizes.layers), false);
  if (config.has(kKey)) set_layers(attends, config, kKey);
  return attends;
}

}  // namespace

nn::CausalLMSpec bamba_spec(const JsonView& json) {
  ConfigReader config(json, "bamba");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kImplied, {.padding_id = 0});
  const double eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-5;
  config.choice("hidden_act", "silu", {"silu"});
  const bool attention_bias = config.flag("attention_bias", false), mlp_bias = config.flag("mlp_bias", false);
  if (config.has("z_loss_coefficient") && config.view().at("z_loss_coefficient").as_number() != 0)
    config.fail("z_loss_coefficient", "expected 0: this addition to the loss isn't built");
  const std::vector<bool> attends = read_attending(config, sizes);
  const nn::Mamba2Spec mamba = read_mamba2(config, sizes, eps);
  const nn::RotarySpec rotary = read_rope(
      config, sizes.head_dim, {.partial_allowed = true, .absent_theta = 1e4, .absent_partial = 0.5});
  if (2 * rotary.rotary_dim != sizes.head_dim)
    config.fail("partial_rotary_factor",
                "expected 0.5: transformers takes it in most versions whatever a file says");
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  config.finish();
  spec.final_norm.name = "model.final_layernorm";
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    const std::string prefix = "model.layers." + std::to_string(i);
    layer.attention.qkv_bias = layer.attention.output_bias = attention_bias;
    layer.mlp_norm->name = prefix + ".pre_ff_layernorm";
    layer.mlp.prefix = prefix + ".feed_forward";
    layer.mlp.bias = mlp_bias;
    if (!attends[static_cast<std::size_t>(i)]) {
      layer.mamba2 = mamba;
      layer.mamba2->prefix = prefix + ".mamba";
    }
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace lorikeet::models
