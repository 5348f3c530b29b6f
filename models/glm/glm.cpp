#include "models/glm/glm.h"

#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

nn::CausalLMSpec read_glm(const JsonView& json, const std::string& family, bool norms_behind) {
  ConfigReader config(json, family);
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, {.head_dim = 128, .padding_id = 151329});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", true);
  // transformers then rotates whole heads, of an absent one half.
  if (config.is_null("partial_rotary_factor"))
    config.fail("partial_rotary_factor", "is null; expected the rotated part of each head");
  const nn::RotarySpec rotary =
      read_rope(config, sizes.head_dim, {.partial_allowed = true, .absent_partial = 0.5});
  config.finish();
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.layout.interleaved = true;
    layer.attention.qkv_bias = bias;
    layer.mlp.fused_gate_up = nn::FusedModule{"gate_up_proj"};
    if (norms_behind) {
      layer.post_attention_norm = nn::NormSpec{prefix + ".post_self_attn_layernorm", sizes.hidden_size, eps};
      layer.post_mlp_norm = nn::NormSpec{prefix + ".post_mlp_layernorm", sizes.hidden_size, eps};
    }
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace

nn::CausalLMSpec glm_spec(const JsonView& json) { return read_glm(json, "glm", /*norms_behind=*/false); }

nn::CausalLMSpec glm4_spec(const JsonView& json) { return read_glm(json, "glm4", /*norms_behind=*/true); }

}  // namespace lorikeet::models
