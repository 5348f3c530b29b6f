#pragma once

#include <cstdint>
#include <functional>
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
  std::string_view count_key = "";  ///< empty: num_experts or num_local_experts, two names of one setting
};

/// Reads the number of experts, num_experts_per_tok or what the family has for it, the width of an expert,
/// norm_topk_prob; router_jitter_noise and output_router_logits, which have to be off: the loss that balances
/// experts isn't there, and experts here are frozen. The spec has no prefix yet. Throws Error naming the key
/// for what doesn't fit.
nn::ExpertsSpec read_experts(ConfigReader& config, const DecoderSizes& sizes,
                             const ExpertsDefaults& defaults);

/// The shared expert, as wide as `shared_expert_intermediate_size` says, or `width` where that is absent;
/// with its gate. Throws Error naming the key.
nn::SharedExpertSpec read_shared_expert(ConfigReader& config, std::int64_t width);

/// So many shared experts as one, without a gate, each as wide as the routed ones. Throws Error naming `key`
/// where it is too wide.
nn::SharedExpertSpec shared_experts(ConfigReader& config, std::string_view key, std::int64_t count,
                                    const nn::ExpertsSpec& experts);

/// How a family groups its experts.
struct GroupsDefaults {
  std::int64_t groups = 1, per_token = 1;  ///< of absent keys
  std::int64_t top = 2;  ///< ops::RouterOptions' group_top: 2 in DeepSeek-V3, 1 in DeepSeek-V2
};

/// Reads into `experts.router` how many groups of experts there are (`n_group`), and from how many of them a
/// token's experts are chosen (`topk_group`). Throws Error naming the key for groups that don't divide the
/// experts or have fewer than their score sums, for more groups a token than there are, and for fewer experts
/// in a token's groups than it has. Call it behind read_experts.
void read_expert_groups(ConfigReader& config, nn::ExpertsSpec& experts, const GroupsDefaults& defaults = {});

/// Above what any file multiplies a router's weights by.
inline constexpr double kLargestScale = 1e3;

/// How a family has DeepSeek-V3's experts.
struct SigmoidExpertsDefaults {
  ExpertsDefaults experts;
  GroupsDefaults groups = {};
  std::int64_t shared = 1;  ///< of an absent n_shared_experts
  double scale = 1;         ///< of an absent routed_scaling_factor
};

/// Experts beside shared ones as DeepSeek-V3 has them, and GLM-4.5 (Liu et al. 2024, arXiv:2412.19437):
/// chosen and weighed by the sigmoids of a router's logits in fp32, with a bias for the choice, from groups
/// that limit it. Reads what read_experts and read_expert_groups do, n_shared_experts and
/// routed_scaling_factor; refuses another `scoring_func` or `topk_method`.
nn::ExpertsSpec read_sigmoid_experts(ConfigReader& config, const DecoderSizes& sizes,
                                     const SigmoidExpertsDefaults& defaults);

/// Throws Error for layers without experts among others (`decoder_sparse_step`, `mlp_only_layers`). Files of
/// both kinds of layers aren't published, and PEFT would take adapters on the MLPs for those of experts.
void require_experts_everywhere(ConfigReader& config);

/// How files may stack experts' matrices: `gate_up_proj`, which has the rows of gate_proj and then those of
/// up_proj, or of both in turn, and `down_proj`.
std::vector<io::CheckpointNames::ExpertStack> gate_up_stacks(bool transposed, bool interleaved = false);

/// Gives the layers for which `in_layer` is true, or all where it is null, experts in place of the MLP, as
/// the layer's block of that name; sets the shape's intermediate_size. `experts`' choice_bias and
/// stacks.prefix are named within the layer, the latter `mlp` where it is empty.
void set_experts(nn::CausalLMSpec& spec, const nn::ExpertsSpec& experts, const std::string& block = "mlp",
                 const std::function<bool(std::int64_t)>& in_layer = nullptr);

/// The same in place of the MLPs of all layers but the first `dense`.
void set_experts_behind(nn::CausalLMSpec& spec, const nn::ExpertsSpec& experts, std::int64_t dense,
                        const std::string& block = "mlp");

/// Has `all-linear` leave out the MLPs and shared experts of a family in which PEFT 0.21 takes the names of
/// their modules for the routed experts' stacked parameters.
void leave_mlps_to_names(nn::CausalLMSpec& spec);

}  // namespace lorikeet::models
