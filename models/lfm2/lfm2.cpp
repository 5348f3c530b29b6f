#include "models/lfm2/lfm2.h"

#include <string>
#include <vector>

#include "base/strings.h"
#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

constexpr const char* kBlock = "feed_forward";

// Of the layers, those with attention: `layer_types`, or `full_attn_idxs`, or all.
std::vector<bool> read_attending(ConfigReader& config, const DecoderSizes& sizes) {
  std::vector<bool> attends;
  const bool by_index = config.has("full_attn_idxs");
  if (config.has("layer_types")) {
    for (const JsonView& type : of_each_layer(config, "layer_types", sizes)) {
      const std::string& name = type.as_string();
      if (name != "conv" && name != "full_attention") {
        config.fail("layer_types", "expected conv or full_attention, got '" + escape_control(name) + "'");
      }
      attends.push_back(name == "full_attention");
    }
    return attends;
  }
  attends.assign(static_cast<std::size_t>(sizes.layers), !by_index);
  if (by_index) set_layers(attends, config, "full_attn_idxs");
  return attends;
}

// The width of the MLP: two thirds of the file's number, times a multiplier and rounded up where there is
// one, unless the file says that it is the width itself. Rounded as transformers does it.
std::int64_t read_mlp_width(ConfigReader& config, std::int64_t written) {
  const std::int64_t whole = config.size_or("block_ff_dim", kLargestWidth, written);
  const bool adjusted = config.flag("block_auto_adjust_ff_dim", true);
  const bool no_multiplier = config.is_null("block_ffn_dim_multiplier");
  const double multiplier = config.positive_or("block_ffn_dim_multiplier", 1e3, 1);
  const std::int64_t unit = config.size_or("block_multiple_of", kLargestWidth, 256);
  if (!adjusted) return whole;
  const std::int64_t thirds = 2 * whole / 3;
  if (no_multiplier) return thirds;
  const auto scaled = static_cast<std::int64_t>(multiplier * static_cast<double>(thirds));
  const std::int64_t width = (scaled + unit - 1) / unit * unit;
  if (width < 1 || width > kLargestWidth) {
    config.contradiction(
        "block_ff_dim, block_ffn_dim_multiplier and block_multiple_of give an MLP of width " +
        std::to_string(width));
  }
  return width;
}

// What both kinds have: `sizes` with the MLP's width and whether the head is tied.
nn::CausalLMSpec read_decoder(ConfigReader& config, DecoderSizes sizes) {
  constexpr std::int64_t kMostTaps = 8;
  sizes.tied_head = config.flag("tie_embedding", sizes.tied_head);
  const double eps = config.has("norm_eps") ? config.epsilon("norm_eps") : 1e-5;
  config.choice("hidden_act", "silu", {"silu"});
  config.require_flag("conv_bias", false, "no published LFM2 has these biases");
  const std::int64_t taps = config.size_or("conv_L_cache", kMostTaps, 3);
  const std::vector<bool> attends = read_attending(config, sizes);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim, {.absent_theta = 1e6}), eps);
  config.finish();
  spec.final_norm.name = "model.embedding_norm";
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    const std::string prefix = "model.layers." + std::to_string(i);
    layer.attention_norm->name = prefix + ".operator_norm";
    layer.mlp_norm->name = prefix + ".ffn_norm";
    layer.mlp.prefix = prefix + "." + kBlock;
    layer.mlp.names.gate = "w1";
    layer.mlp.names.up = "w3";
    layer.mlp.names.down = "w2";
    if (attends[static_cast<std::size_t>(i)]) {
      nn::AttentionSpec& attention = layer.attention;
      attention.names.output = "out_proj";
      attention.qk_norm = {{attention.prefix + ".q_layernorm", sizes.head_dim, eps},
                           {attention.prefix + ".k_layernorm", sizes.head_dim, eps}};
    } else {
      layer.short_conv =
          nn::ShortConvSpec{.prefix = prefix + ".conv", .hidden_size = sizes.hidden_size, .taps = taps};
    }
    spec.layers.push_back(layer);
  }
  return spec;
}

}  // namespace

nn::CausalLMSpec lfm2_spec(const JsonView& json) {
  ConfigReader config(json, "lfm2");
  DecoderSizes sizes = read_sizes(config, HeadDim::kOptional,
                                  {.intermediate_size = 12288, .tied_head = true, .padding_id = 0});
  sizes.intermediate_size = read_mlp_width(config, sizes.intermediate_size);
  return read_decoder(config, sizes);
}

nn::CausalLMSpec lfm2_moe_spec(const JsonView& json) {
  ConfigReader config(json, "lfm2_moe");
  const DecoderSizes sizes =
      read_sizes(config, HeadDim::kOptional, {.intermediate_size = 7168, .tied_head = true, .padding_id = 0});
  nn::ExpertsSpec experts = read_experts(
      config, sizes,
      {.count = 32, .per_token = 4, .width_key = "moe_intermediate_size", .width = 1792, .normalized = true});
  experts.router.scores = ops::RouterScores::kSigmoid;
  experts.router.sum_eps = 1e-6;
  experts.router.scale = config.positive_or("routed_scaling_factor", kLargestScale, 1);
  experts.names.gate = "w1";
  experts.names.up = "w3";
  experts.names.down = "w2";
  experts.stacks.prefix = kBlock;
  if (config.flag("use_expert_bias", true))
    experts.choice_bias = {std::string(kBlock) + ".expert_bias", {experts.count}};
  const std::int64_t dense = config.count_or("num_dense_layers", kMostLayers, 2);
  if (!config.has("layer_types"))
    config.fail("layer_types", "is missing; expected which layers are convolutions and which attend");
  nn::CausalLMSpec spec = read_decoder(config, sizes);
  set_experts_behind(spec, experts, dense, kBlock);
  return spec;
}

}  // namespace lorikeet::models
