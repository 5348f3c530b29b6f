#include "models/mixtral/mixtral.h"

#include "models/decoder_spec.h"
#include "models/experts.h"
#include "models/rope.h"

namespace lorikeet::models {

nn::CausalLMSpec mixtral_spec(const JsonView& json) {
  ConfigReader config(json, "mixtral");
  const DecoderSizes sizes = read_sizes(config);
  const double eps = config.epsilon("rms_norm_eps");
  config.choice("hidden_act", "silu", {"silu"});
  const std::int64_t window = config.size_or("sliding_window", kMostPositions, 0);
  nn::CausalLMSpec spec = decoder_spec(sizes, read_rope(config, sizes.head_dim, {.absent_theta = 1e6}), eps);
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 8,
                                          .per_token = 2,
                                          .width_key = "intermediate_size",
                                          .width = sizes.intermediate_size,
                                          .normalized = true,
                                          .reads_normalized = false});
  experts.names.gate = "w1";
  experts.names.up = "w3";
  experts.names.down = "w2";
  config.finish();
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    nn::DecoderLayerSpec layer = llama_layer(sizes, eps, i);
    layer.attention.options.window = window;
    spec.layers.push_back(layer);
  }
  set_experts(spec, experts, "block_sparse_moe");
  return spec;
}

}  // namespace lorikeet::models
