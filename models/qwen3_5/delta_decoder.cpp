#include "models/qwen3_5/delta_decoder.h"

#include <vector>

#include "base/strings.h"
#include "models/decoder_spec.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// Of the layers, those that are gated delta nets: `layer_types`, or all but every
// `full_attention_interval`th.
std::vector<bool> read_delta_layers(ConfigReader& config, const DecoderSizes& sizes) {
  const auto is_delta = all_but_every(config.size_or("full_attention_interval", kMostLayers, 4));
  std::vector<bool> delta;
  if (!config.has("layer_types")) {
    for (std::int64_t i = 0; i < sizes.layers; ++i) delta.push_back(is_delta(i));
    return delta;
  }
  for (const JsonView& type : of_each_layer(config, "layer_types", sizes)) {
    const std::string& name = type.as_string();
    if (name != "linear_attention" && name != "full_attention") {
      config.fail("layer_types",
                  "expected linear_attention or full_attention, got '" + escape_control(name) + "'");
    }
    delta.push_back(name == "linear_attention");
  }
  return delta;
}

// transformers' defaults where a file lacks a key are those of the 9B model.
nn::GatedDeltaNetSpec read_delta_net(ConfigReader& config, const DecoderSizes& sizes, double eps,
                                     const std::optional<nn::FusedDeltaNet>& fused) {
  constexpr std::int64_t kMostTaps = 8;
  const ops::DeltaLayout layout{.key_heads = config.size_or("linear_num_key_heads", kLargestWidth, 16),
                                .value_heads = config.size_or("linear_num_value_heads", kLargestWidth, 32),
                                .key_dim = config.size_or("linear_key_head_dim", kLargestWidth, 128),
                                .value_dim = config.size_or("linear_value_head_dim", kLargestWidth, 128)};
  if (layout.value_heads % layout.key_heads != 0) {
    config.contradiction("linear_num_value_heads " + std::to_string(layout.value_heads) +
                         " is no multiple of linear_num_key_heads " + std::to_string(layout.key_heads));
  }
  if (layout.width() > kLargestWidth) {
    config.contradiction("the heads of linear_num_key_heads and linear_num_value_heads have " +
                         std::to_string(layout.width()) + " numbers, over " + std::to_string(kLargestWidth));
  }
  return {.hidden_size = sizes.hidden_size,
          .layout = layout,
          .taps = config.size_or("linear_conv_kernel_dim", kMostTaps, 4),
          .norm_eps = eps,
          .fused = fused};
}

// With the shared one; nothing where the family has none.
std::optional<nn::ExpertsSpec> read_experts_and_shared(ConfigReader& config, const DecoderSizes& sizes,
                                                       const DeltaDecoderForm& form) {
  if (!form.experts) return std::nullopt;
  if (!form.experts->reads_normalized)
    config.require_flag("norm_topk_prob", true, "transformers always does");
  nn::ExpertsSpec experts = read_experts(config, sizes, *form.experts);
  experts.shared = read_shared_expert(config, form.shared_width);
  require_experts_everywhere(config);
  return experts;
}

}  // namespace

nn::CausalLMSpec delta_decoder(ConfigReader& config, const std::string& model, const DeltaDecoderForm& form) {
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, form.sizes);
  const double eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-6;
  config.choice("hidden_act", "silu", {"silu"});
  const bool bias = config.flag("attention_bias", false);
  config.require_flag("attn_output_gate", true, "transformers always has this gate");
  // Of z in delta nets; transformers takes SiLU whatever the file says.
  config.choice("output_gate_type", "swish", {"swish", "silu"});
  // What predicts tokens further ahead isn't trained. The states are fp32 here, whatever the file says.
  config.claim({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"});
  const std::vector<bool> delta = read_delta_layers(config, sizes);
  const nn::GatedDeltaNetSpec net = read_delta_net(config, sizes, eps, form.fused);
  const std::optional<nn::ExpertsSpec> experts = read_experts_and_shared(config, sizes, form);
  nn::CausalLMSpec spec = decoder_spec(sizes,
                                       read_rope(config, sizes.head_dim,
                                                 {.partial_allowed = true,
                                                  .multimodal = form.multimodal_rope,
                                                  .absent_theta = 1e4,
                                                  .absent_partial = 0.25}),
                                       eps, model);
  config.finish();
  spec.final_norm.unit_offset = true;
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i, model + ".layers");
    layer.attention_norm->unit_offset = layer.mlp_norm->unit_offset = true;
    if (delta[static_cast<std::size_t>(i)]) {
      layer.delta_net = net;
      layer.delta_net->prefix = model + ".layers." + std::to_string(i) + ".linear_attn";
    } else {
      nn::AttentionSpec& attention = layer.attention;
      attention.qkv_bias = attention.output_bias = bias;
      attention.qk_norm = head_norms(attention, eps, /*unit_offset=*/true);
      attention.output_gate = true;
    }
    spec.layers.push_back(layer);
  }
  if (experts) set_experts(spec, *experts);
  return spec;
}

}  // namespace lorikeet::models
