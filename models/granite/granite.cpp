#include "models/granite/granite.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/mamba.h"
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

// Of the layers, those that are Mamba 2's. transformers takes all where the file has no list.
std::vector<bool> read_mamba_layers(ConfigReader& config, const DecoderSizes& sizes) {
  constexpr const char* kKey = "layer_types";
  // Another name of the list in transformers, which prefers it.
  if (config.has("layers_block_type"))
    config.fail("layers_block_type", "is not read; give the list as layer_types");
  if (!config.has(kKey)) config.fail(kKey, "is missing; expected 'attention' or 'mamba' for each layer");
  std::vector<bool> mamba;
  for (const JsonView& type : of_each_layer(config, kKey, sizes)) {
    const std::string& name = type.as_string();
    mamba.push_back(name == "mamba" || name == "linear_attention");
    if (!mamba.back() && name != "attention" && name != "full_attention") {
      config.fail(kKey,
                  "expected 'attention' or 'mamba' for each layer, or transformers 5's "
                  "'full_attention' or 'linear_attention', got '" +
                      escape_control(name) + "'");
    }
  }
  return mamba;
}

// Beside the MLP, which every token passes; nothing where num_local_experts is 0.
std::optional<nn::ExpertsSpec> read_granite_experts(ConfigReader& config, const DecoderSizes& sizes) {
  constexpr const char* kCount = "num_local_experts";
  if (config.is_null(kCount)) config.fail(kCount, "expected a number, 0 for none, got null");
  if (config.has(kCount) && config.view().at(kCount).as_int() == 0) return std::nullopt;
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 8,
                                          .per_token = 2,
                                          .width_key = "intermediate_size",
                                          .width = sizes.intermediate_size,
                                          .normalized = true,
                                          .reads_normalized = false});
  // Softmax over the logits of a token's experts alone is that over all, normalized.
  experts.names.router = "block_sparse_moe.router.layer";
  experts.names.experts = "block_sparse_moe.experts";
  experts.stacks.prefix = "block_sparse_moe";
  experts.stacks.only = true;
  experts.shared = nn::SharedExpertSpec{.name = "shared_mlp", .gate = ""};
  return experts;
}

// In place of each layer's MLP, which is the shared expert then.
void set_granite_experts(nn::CausalLMSpec& spec, nn::ExpertsSpec experts) {
  const nn::MlpSpec& mlp = spec.layers.front().mlp;
  experts.shared->intermediate_size = mlp.intermediate_size;
  experts.shared->modules = mlp.names;
  experts.shared->fused_gate_up = mlp.fused_gate_up;
  set_experts(spec, experts, "block_sparse_moe");
  for (nn::DecoderLayerSpec& layer : spec.layers)
    layer.experts->prefix = "model.layers." + std::to_string(layer.index);
  auto& stacks = spec.checkpoint_names.expert_stacks = gate_up_stacks(/*transposed=*/false);
  stacks[0].in_file = "block_sparse_moe.input_linear.weight";
  stacks[1].in_file = "block_sparse_moe.output_linear.weight";
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
  DecoderSizes sizes = read_sizes(config, HeadDim::kImplied);
  const std::vector<bool> is_mamba = read_mamba_layers(config, sizes);
  const std::optional<nn::ExpertsSpec> experts = read_granite_experts(config, sizes);
  // The width of experts is `intermediate_size`; what every token passes has its own.
  sizes.intermediate_size = config.size("shared_intermediate_size", kLargestWidth);
  const bool rotary = config.choice("position_embedding_type", "nope", {"rope", "nope"}) == "rope";
  nn::CausalLMSpec spec = read_granite(
      config, sizes, rotary ? read_rope(config, sizes.head_dim) : nn::RotarySpec{}, /*mlp_bias=*/false);
  std::optional<nn::Mamba2Spec> mamba;
  if (std::find(is_mamba.begin(), is_mamba.end(), true) != is_mamba.end())
    mamba = read_mamba2(config, sizes, config.epsilon("rms_norm_eps"));
  if (!rotary) {
    config.claim({"partial_rotary_factor"});
    spec.rotary.reset();
  }
  config.finish();
  for (nn::DecoderLayerSpec& layer : spec.layers) {
    const std::string prefix = "model.layers." + std::to_string(layer.index);
    layer.mlp.prefix = prefix + ".shared_mlp";
    layer.mlp.fused_gate_up = nn::FusedModule{"input_linear"};
    layer.mlp.names.down = "output_linear";
    if (!rotary) layer.rotary = nn::LayerRotary::kNone;
    if (!is_mamba[static_cast<std::size_t>(layer.index)]) continue;
    layer.mamba2 = mamba;
    layer.mamba2->prefix = prefix + ".mamba";
  }
  if (experts) set_granite_experts(spec, *experts);
  return spec;
}

}  // namespace lorikeet::models
