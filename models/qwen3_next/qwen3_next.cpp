#include "models/qwen3_next/qwen3_next.h"

#include "models/qwen3_5/delta_decoder.h"

namespace lorikeet::models {

nn::CausalLMSpec qwen3_next_spec(const JsonView& json) {
  ConfigReader config(json, "qwen3_next");
  nn::CausalLMSpec spec = delta_decoder(config, "model",
                                        {.sizes = {.intermediate_size = 5632, .kv_heads = 2, .head_dim = 256},
                                         .multimodal_rope = false,
                                         .fused = nn::FusedDeltaNet{},
                                         .experts = ExpertsDefaults{.count = 512,
                                                                    .per_token = 10,
                                                                    .width_key = "moe_intermediate_size",
                                                                    .width = 512,
                                                                    .normalized = true},
                                         .shared_width = 512});
  // PEFT 0.21 on transformers 5 passes over adapters on these, since it takes their names for the routed
  // experts' stacked parameters.
  leave_mlps_to_names(spec);
  spec.checkpoint_names.other_parts = {"mtp."};
  return spec;
}

}  // namespace lorikeet::models
