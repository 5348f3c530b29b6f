#include "models/ernie4_5/ernie4_5.h"

#include <cstdint>
#include <functional>
#include <string>

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

nn::CausalLMSpec read_decoder(ConfigReader& config, const DecoderSizes& sizes) {
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("use_bias", false);
  nn::CausalLMSpec spec =
      decoder_spec(sizes, read_rope(config, sizes.head_dim, {.absent_theta = 500000}), eps);
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.layout.interleaved = true;
    layer.attention.qkv_bias = layer.attention.output_bias = layer.mlp.bias = bias;
    spec.layers.push_back(layer);
  }
  return spec;
}

// Which layers have experts.
std::function<bool(std::int64_t)> read_expert_layers(ConfigReader& config, const DecoderSizes& sizes) {
  const std::int64_t interval = config.size_or("moe_layer_interval", kMostLayers, 1);
  const std::int64_t first = config.count_or("moe_layer_start_index", kMostLayers, 1);
  const bool given = config.has("moe_layer_end_index");
  const std::int64_t end = given ? config.view().at("moe_layer_end_index").as_int() : -1;
  if (end < -1)
    config.fail(
        "moe_layer_end_index",
        "expected the last layer with experts, or -1 for the last of all, got " + std::to_string(end));
  const std::int64_t last = end == -1 ? sizes.layers - 1 : end;
  return [=](std::int64_t layer) { return (layer + 1) % interval == 0 && layer >= first && layer <= last; };
}

}  // namespace

nn::CausalLMSpec ernie4_5_spec(const JsonView& json) {
  ConfigReader config(json, "ernie4_5");
  return read_decoder(
      config, read_sizes(config, HeadDim::kRequired, {.head_dim = 128, .tied_head = true, .padding_id = 0}));
}

nn::CausalLMSpec ernie4_5_moe_spec(const JsonView& json) {
  ConfigReader config(json, "ernie4_5_moe");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional,
                                        {.intermediate_size = 12288, .tied_head = true, .padding_id = 0});
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 64,
                                          .per_token = 6,
                                          .width_key = "moe_intermediate_size",
                                          .width = 1536,
                                          .normalized = true,
                                          .reads_normalized = false,
                                          .per_token_key = "moe_k",
                                          .count_key = "moe_num_experts"});
  experts.wide_router = true;
  experts.choice_bias = {"mlp.moe_statics.e_score_correction_bias", {1, experts.count}};
  experts.router.least_sum = config.positive_or("moe_norm_min", 1, 1e-12);
  if (experts.router.least_sum > 1e-6)
    config.fail("moe_norm_min", "expected at most 1e-6: a larger one isn't built");
  constexpr const char* kShared = "moe_num_shared_experts";
  if (const std::int64_t shared = config.count_or(kShared, kMostLayers, 2); shared > 0)
    experts.shared = shared_experts(config, kShared, shared, experts);
  const auto in_layer = read_expert_layers(config, sizes);
  nn::CausalLMSpec spec = read_decoder(config, sizes);
  if (spec.layers.front().attention.qkv_bias)
    config.fail("use_bias", "expected false: no published ERNIE 4.5 with experts has biases");
  set_experts(spec, experts, "mlp", in_layer);
  leave_mlps_to_names(spec);
  spec.checkpoint_names.other_parts = {"model.mtp_"};
  return spec;
}

}  // namespace lorikeet::models
