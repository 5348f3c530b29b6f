#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/config_reader.h"
#include "models/sizes.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// What a family's experts are beside what config.json says of them.
struct ExpertsDefaults {
  std::int64_t count, per_token;  ///< of absent keys
  std::string_view width_key;     ///< the key with the width of one expert
  std::int64_t width;             ///< of that key where it is absent
  bool normalized;  ///< whether weights of a token are; `norm_topk_prob` says so where it is read
  bool reads_normalized = true;
  std::string_view per_token_key = "num_experts_per_tok";
};

/// Reads num_experts or num_local_experts (two names of one setting), num_experts_per_tok or what the
/// family has for it, the width of an expert, norm_topk_prob; router_jitter_noise and output_router_logits,
/// which have to be off: the loss that balances experts isn't there, and experts here are frozen. The spec
/// has no prefix yet. Throws Error naming the key for what doesn't fit.
nn::ExpertsSpec read_experts(ConfigReader& config, const DecoderSizes& sizes,
                             const ExpertsDefaults& defaults);

/// The shared expert, as wide as `shared_expert_intermediate_size` says, or `width` where that is absent;
/// with its gate. Throws Error naming the key.
nn::SharedExpertSpec read_shared_expert(ConfigReader& config, std::int64_t width);

/// Throws Error for layers without experts among others (`decoder_sparse_step`, `mlp_only_layers`). Files of
/// both kinds of layers aren't published, and PEFT would take adapters on the MLPs for those of experts.
void require_experts_everywhere(ConfigReader& config);

/// How files may stack experts' matrices: `gate_up_proj`, which has the rows of gate_proj and then those of
/// up_proj, or of both in turn, and `down_proj`.
std::vector<io::CheckpointNames::ExpertStack> gate_up_stacks(bool transposed, bool interleaved = false);

/// Gives every layer experts in place of its MLP, as the layer's block of that name, which in transformers 5
/// is `mlp`; sets the shape's intermediate_size.
void set_experts(nn::CausalLMSpec& spec, const nn::ExpertsSpec& experts, const std::string& block = "mlp");

}  // namespace lorikeet::models
