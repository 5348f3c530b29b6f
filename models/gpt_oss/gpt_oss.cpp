#include "models/gpt_oss/gpt_oss.h"

#include <string>

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/rope.h"

namespace lorikeet::models {
namespace {

// The numbers of ops::Activation::kClampedSwiglu, which all published files have.
void require_activation(ConfigReader& config) {
  config.choice("hidden_act", "silu", {"silu"});
  const auto require = [&](const char* key, double number) {
    if (config.positive_or(key, 1e6, number) != number)
      config.fail(key, "expected " + std::to_string(number) + "; no other clamped SwiGLU is built");
  };
  require("swiglu_limit", 7.0);
  require("swiglu_alpha", 1.702);
}

}  // namespace

nn::CausalLMSpec gpt_oss_spec(const JsonView& json) {
  ConfigReader config(json, "gpt_oss");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, {.kv_heads = 8, .head_dim = 64});
  const double eps = config.has("rms_norm_eps") ? config.epsilon("rms_norm_eps") : 1e-5;
  require_activation(config);
  const bool bias = config.flag("attention_bias", true);
  const auto windows = read_windows(config, sizes, [](std::int64_t layer) { return layer % 2 == 0; });
  nn::CausalLMSpec spec =
      decoder_spec(sizes, read_rope(config, sizes.head_dim, {.absent_theta = 150000}), eps);
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 128,
                                          .per_token = 4,
                                          .width_key = "intermediate_size",
                                          .width = sizes.intermediate_size,
                                          .normalized = true,
                                          .reads_normalized = false});
  config.finish();
  experts.activation = ops::Activation::kClampedSwiglu;
  experts.router_bias = experts.bias = true;
  experts.stacks = {.interleaved = true, .only = true};
  experts.names.router = "router";
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.qkv_bias = layer.attention.output_bias = bias;
    layer.attention.sinks = true;
    layer.attention.options.window = windows[static_cast<std::size_t>(i)];
    spec.layers.push_back(layer);
  }
  set_experts(spec, experts);
  spec.checkpoint_names.expert_stacks = gate_up_stacks(/*transposed=*/true, experts.stacks.interleaved);
  return spec;
}

}  // namespace lorikeet::models
