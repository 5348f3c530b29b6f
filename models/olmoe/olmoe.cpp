#include "models/olmoe/olmoe.h"

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec olmoe_spec(const JsonView& json) {
  ConfigReader config(json, "olmoe");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kImplied, {.padding_id = 1});
  const double eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-5;
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  if (config.has("clip_qkv")) config.fail("clip_qkv", "expected null: clipped q, k and v aren't built");
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim), eps);
  const nn::ExpertsSpec experts = read_experts(config, sizes,
                                               {.count = 64,
                                                .per_token = 8,
                                                .width_key = "intermediate_size",
                                                .width = sizes.intermediate_size,
                                                .normalized = false});
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    nn::AttentionSpec& attention = layer.attention;
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = whole_norms(attention, eps);
    spec.layers.push_back(layer);
  }
  set_experts(spec, experts);
  return spec;
}

}  // namespace lorikeet::models
