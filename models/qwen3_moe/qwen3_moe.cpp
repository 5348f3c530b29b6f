#include "models/qwen3_moe/qwen3_moe.h"

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/qwen3/qwen3.h"

namespace lorikeet::models {
namespace {

// One window for all layers: `max_window_layers` is in the files, but transformers has no layers without it.
std::vector<std::int64_t> read_window(ConfigReader& config, const DecoderSizes& sizes) {
  config.claim({"sliding_window", "max_window_layers"});
  const bool used = config.flag("use_sliding_window", false) && read_whether_windowed(config);
  const std::int64_t window = used ? config.size("sliding_window", kMostPositions) : 0;
  return std::vector<std::int64_t>(static_cast<std::size_t>(sizes.layers), window);
}

}  // namespace

nn::CausalLMSpec qwen3_moe_spec(const JsonView& json) {
  ConfigReader config(json, "qwen3_moe");
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.intermediate_size = 6144});
  const nn::ExpertsSpec experts = read_experts(config, sizes,
                                               {.count = 128,
                                                .per_token = 8,
                                                .width_key = "moe_intermediate_size",
                                                .width = 768,
                                                .normalized = false});
  require_experts_everywhere(config);
  nn::CausalLMSpec spec = qwen3_decoder(config, sizes, read_window(config, sizes), {}, "model");
  set_experts(spec, experts);
  return spec;
}

}  // namespace lorikeet::models
