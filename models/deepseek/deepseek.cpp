#include "models/deepseek/deepseek.h"

#include <string>

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/latent_decoder.h"

namespace lorikeet::models {
namespace {

// The number of layers before those with experts, which all others have.
std::int64_t read_dense_layers(ConfigReader& config, std::int64_t absent) {
  if (config.size_or("moe_layer_freq", kMostLayers, 1) != 1)
    config.fail("moe_layer_freq", "expected 1: transformers has experts in every layer behind the first");
  return config.count_or("first_k_dense_replace", kMostLayers, absent);
}

nn::ExpertsSpec read_v2_experts(ConfigReader& config, const DecoderSizes& sizes) {
  // transformers gives the number of experts a token no default.
  if (!config.has("num_experts_per_tok")) config.fail("num_experts_per_tok", "is missing");
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 64,
                                          .per_token = 1,
                                          .width_key = "moe_intermediate_size",
                                          .width = 1407,
                                          .normalized = false,
                                          .reads_normalized = false,
                                          .count_key = "n_routed_experts"});
  config.require_flag("norm_topk_prob", false, "transformers takes no notice of it in this family");
  config.choice("scoring_func", "softmax", {"softmax"});
  if (config.choice("topk_method", "greedy", {"greedy", "group_limited_greedy"}) == "group_limited_greedy") {
    for (const char* key : {"n_group", "topk_group"}) {
      if (!config.has(key)) config.fail(key, "is missing, but topk_method is group_limited_greedy");
    }
    read_expert_groups(config, experts, {.top = 1});
  }
  experts.wide_router = true;
  experts.router.scale = config.positive_or("routed_scaling_factor", kLargestScale, 1);
  experts.shared =
      shared_experts(config, "n_shared_experts", config.size_or("n_shared_experts", kMostLayers, 2), experts);
  return experts;
}

}  // namespace

nn::CausalLMSpec deepseek_v2_spec(const JsonView& json) {
  ConfigReader config(json, "deepseek_v2");
  const LatentDecoder decoder = read_latent_decoder(config,
                                                    {.query_rank = 1536,
                                                     .key_value_rank = 512,
                                                     .plain_dim = 128,
                                                     .rotary_dim = 64,
                                                     .value_dim = 128,
                                                     .reads_interleaved = false},
                                                    {.intermediate_size = 11008});
  const nn::ExpertsSpec experts = read_v2_experts(config, decoder.sizes);
  const std::int64_t dense = read_dense_layers(config, 0);
  config.require_flag("rope_interleave", true, "this family always rotates neighbours");
  config.require_flag("mlp_bias", false, "biases of these MLPs aren't built");
  nn::CausalLMSpec spec = latent_decoder_spec(config, decoder);
  config.finish();
  set_experts_behind(spec, experts, dense);
  leave_mlps_to_names(spec);
  return spec;
}

nn::CausalLMSpec deepseek_v3_spec(const JsonView& json) {
  ConfigReader config(json, "deepseek_v3");
  const LatentDecoder decoder = read_latent_decoder(
      config,
      {.query_rank = 1536, .key_value_rank = 512, .plain_dim = 128, .rotary_dim = 64, .value_dim = 128},
      {.intermediate_size = 18432});
  const nn::ExpertsSpec experts = read_sigmoid_experts(config, decoder.sizes,
                                                       {.experts = {.count = 256,
                                                                    .per_token = 8,
                                                                    .width_key = "moe_intermediate_size",
                                                                    .width = 2048,
                                                                    .normalized = true,
                                                                    .count_key = "n_routed_experts"},
                                                        .groups = {.groups = 8, .per_token = 4},
                                                        .scale = 2.5});
  const std::int64_t dense = read_dense_layers(config, 3), further = read_further_layers(config);
  nn::CausalLMSpec spec = latent_decoder_spec(config, decoder);
  config.finish();
  set_experts_behind(spec, experts, dense);
  leave_mlps_to_names(spec);
  leave_out_further_layers(spec, further);
  return spec;
}

}  // namespace lorikeet::models
