#include "models/qwen2_moe/qwen2_moe.h"

#include <vector>

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/qwen2/qwen2.h"

namespace lorikeet::models {
namespace {

// Which layers have a window is said by `layer_types` alone: without it transformers 4 takes those from
// `max_window_layers` on, and transformers 5 every other one below.
std::vector<std::int64_t> read_qwen2_moe_windows(ConfigReader& config, const DecoderSizes& sizes) {
  if (config.flag("use_sliding_window", false) && !config.has("layer_types"))
    config.fail("layer_types", "is missing, but use_sliding_window is true; expected the type of each layer");
  config.claim({"max_window_layers"});
  return read_qwen_windows(config, sizes);
}

}  // namespace

nn::CausalLMSpec qwen2_moe_spec(const JsonView& json) {
  ConfigReader config(json, "qwen2_moe");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.intermediate_size = 5632});
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 60,
                                          .per_token = 4,
                                          .width_key = "moe_intermediate_size",
                                          .width = 1408,
                                          .normalized = false});
  experts.shared = read_shared_expert(config, 5632);
  require_experts_everywhere(config);
  const bool bias = config.flag("qkv_bias", true);
  nn::CausalLMSpec spec = qwen2_decoder(config, sizes, read_qwen2_moe_windows(config, sizes), {}, "model");
  for (nn::DecoderLayerSpec& layer : spec.layers) layer.attention.qkv_bias = bias;
  set_experts(spec, experts);
  return spec;
}

}  // namespace lorikeet::models
