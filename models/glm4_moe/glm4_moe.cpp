#include "models/glm4_moe/glm4_moe.h"

#include <algorithm>
#include <string>

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

nn::ExpertsSpec read_glm_experts(ConfigReader& config, const DecoderSizes& sizes) {
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 128,
                                          .per_token = 8,
                                          .width_key = "moe_intermediate_size",
                                          .width = 1408,
                                          .normalized = true,
                                          .count_key = "n_routed_experts"});
  read_expert_groups(config, experts);
  experts.wide_router = true;
  experts.router.scores = ops::RouterScores::kSigmoid;
  experts.router.sum_eps = 1e-20;
  experts.router.scale = config.positive_or("routed_scaling_factor", kLargestScale, 1);
  experts.choice_bias = {"mlp.gate.e_score_correction_bias", {experts.count}};
  experts.shared =
      shared_experts(config, "n_shared_experts", config.size_or("n_shared_experts", kMostLayers, 1), experts);
  return experts;
}

}  // namespace

nn::CausalLMSpec glm4_moe_spec(const JsonView& json) {
  ConfigReader config(json, "glm4_moe");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.intermediate_size = 10944});
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false), normed = config.flag("use_qk_norm", false);
  const nn::ExpertsSpec experts = read_glm_experts(config, sizes);
  const std::int64_t dense = config.count_or("first_k_dense_replace", kMostLayers, 1);
  // What predicts tokens further ahead isn't trained: layers behind the last.
  const std::int64_t further = std::max(config.count_or("num_nextn_predict_layers", kMostLayers, 1),
                                        config.count_or("num_mtp_layers", kMostLayers, 1));
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
  set_experts(spec, experts, "mlp", [dense](std::int64_t layer) { return layer >= dense; });
  leave_mlps_to_names(spec);
  for (std::int64_t i = 0; i < further; ++i)
    spec.checkpoint_names.other_parts.push_back("model.layers." + std::to_string(sizes.layers + i) + ".");
  return spec;
}

}  // namespace lorikeet::models
