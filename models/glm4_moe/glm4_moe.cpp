#include "models/glm4_moe/glm4_moe.h"

#include <string>
#include <vector>

#include "base/strings.h"
#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/latent_decoder.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// Which layers have experts: all but the first where the file has no list.
std::vector<bool> read_sparse_layers(ConfigReader& config, const DecoderSizes& sizes) {
  constexpr const char* kKey = "mlp_layer_types";
  std::vector<bool> sparse(static_cast<std::size_t>(sizes.layers), true);
  sparse.front() = false;
  // transformers takes no notice of this key, which the family's larger models have.
  if (config.count_or("first_k_dense_replace", kMostLayers, 1) != 1 && !config.has(kKey))
    config.fail("first_k_dense_replace", "expected 1, or the layers' kinds by mlp_layer_types");
  if (!config.has(kKey)) return sparse;
  const std::vector<JsonView> types = of_each_layer(config, kKey, sizes);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string& type = types[i].as_string();
    if (type != "dense" && type != "sparse")
      config.fail(kKey, "expected dense or sparse, got '" + escape_control(type) + "'");
    sparse[i] = type == "sparse";
  }
  return sparse;
}

}  // namespace

nn::CausalLMSpec glm4_moe_spec(const JsonView& json) {
  ConfigReader config(json, "glm4_moe");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.intermediate_size = 10944});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false), normed = config.flag("use_qk_norm", false);
  const nn::ExpertsSpec experts = read_sigmoid_experts(config, sizes,
                                                       {.experts = {.count = 128,
                                                                    .per_token = 8,
                                                                    .width_key = "moe_intermediate_size",
                                                                    .width = 1408,
                                                                    .normalized = true,
                                                                    .count_key = "n_routed_experts"}});
  const std::int64_t dense = config.count_or("first_k_dense_replace", kMostLayers, 1);
  const std::int64_t further = read_further_layers(config);
  const nn::RotarySpec rotary =
      read_rope(config, sizes.head_dim, {.partial_allowed = true, .absent_partial = 0.5});
  config.finish();
  nn::CausalLMSpec spec = decoder_spec(sizes, rotary, eps);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.qkv_bias = bias;
    if (normed) layer.attention.qk_norm = head_norms(layer.attention, eps);
    spec.layers.push_back(layer);
  }
  set_experts_behind(spec, experts, dense);
  leave_mlps_to_names(spec);
  leave_out_further_layers(spec, further);
  return spec;
}

nn::CausalLMSpec glm4_moe_lite_spec(const JsonView& json) {
  ConfigReader config(json, "glm4_moe_lite");
  const LatentDecoder decoder = read_latent_decoder(
      config,
      {.query_rank = 768, .key_value_rank = 512, .plain_dim = 192, .rotary_dim = 64, .value_dim = 256},
      {.intermediate_size = 10240});
  const nn::ExpertsSpec experts = read_sigmoid_experts(config, decoder.sizes,
                                                       {.experts = {.count = 64,
                                                                    .per_token = 4,
                                                                    .width_key = "moe_intermediate_size",
                                                                    .width = 1536,
                                                                    .normalized = true,
                                                                    .count_key = "n_routed_experts"},
                                                        .scale = 1.8});
  const std::vector<bool> sparse = read_sparse_layers(config, decoder.sizes);
  const std::int64_t further = read_further_layers(config);
  nn::CausalLMSpec spec = latent_decoder_spec(config, decoder);
  config.finish();
  set_experts(spec, experts, "mlp",
              [&](std::int64_t layer) { return sparse[static_cast<std::size_t>(layer)]; });
  leave_mlps_to_names(spec);
  leave_out_further_layers(spec, further);
  return spec;
}

}  // namespace lorikeet::models
