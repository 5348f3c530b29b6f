#include "models/experts.h"

#include <string>

namespace lorikeet::models {
namespace {

// Far above any model, with which a product of sizes overflows nothing (see kLargestWidth).
constexpr std::int64_t kMostExperts = 1 << 12;

// transformers writes one name of this setting and reads both.
std::int64_t read_count(ConfigReader& config, std::int64_t fallback, std::string_view key) {
  if (!key.empty()) return config.size_or(key, kMostExperts, fallback);
  const char *const name = "num_experts", *const other = "num_local_experts";
  const std::int64_t count = config.size_or(name, kMostExperts, 0);
  const std::int64_t same = config.size_or(other, kMostExperts, 0);
  if (count != 0 && same != 0 && count != same)
    config.fail(name, std::to_string(count) + " contradicts " + other + " " + std::to_string(same));
  if (count == 0 && same == 0) return fallback;
  return count != 0 ? count : same;
}

}  // namespace

nn::ExpertsSpec read_experts(ConfigReader& config, const DecoderSizes& sizes,
                             const ExpertsDefaults& defaults) {
  nn::ExpertsSpec experts{
      .prefix = "",
      .hidden_size = sizes.hidden_size,
      .intermediate_size = config.size_or(defaults.width_key, kLargestWidth, defaults.width),
      .count = read_count(config, defaults.count, defaults.count_key),
      .router = {.normalized = defaults.normalized}};
  if (experts.count * experts.intermediate_size > kLargestWidth) {
    config.fail(defaults.width_key, "expected at most " + std::to_string(kLargestWidth) +
                                        " rows in all experts, got " + std::to_string(experts.count) +
                                        " experts of " + std::to_string(experts.intermediate_size));
  }
  experts.router.per_token = config.size_or(defaults.per_token_key, kMostExperts, defaults.per_token);
  if (experts.router.per_token > experts.count) {
    config.fail(defaults.per_token_key, "expected at most the number of experts, " +
                                            std::to_string(experts.count) + ", got " +
                                            std::to_string(experts.router.per_token));
  }
  if (defaults.reads_normalized)
    experts.router.normalized = config.flag("norm_topk_prob", defaults.normalized);
  config.require_flag("output_router_logits", false,
                      "it adds a loss that balances experts, which isn't built; set it to false");
  if (config.has("router_jitter_noise") && config.view().at("router_jitter_noise").as_number() != 0)
    config.fail("router_jitter_noise", "expected 0: noise at the router isn't built");
  return experts;
}

nn::SharedExpertSpec read_shared_expert(ConfigReader& config, std::int64_t width) {
  return {.intermediate_size = config.size_or("shared_expert_intermediate_size", kLargestWidth, width)};
}

nn::SharedExpertSpec shared_experts(ConfigReader& config, std::string_view key, std::int64_t count,
                                    const nn::ExpertsSpec& experts) {
  const std::int64_t width = count * experts.intermediate_size;
  if (width > kLargestWidth)
    config.fail(key, "makes a shared expert over " + std::to_string(kLargestWidth) + " wide");
  return {.intermediate_size = width, .name = "shared_experts", .gate = ""};
}

void read_expert_groups(ConfigReader& config, nn::ExpertsSpec& experts, const GroupsDefaults& defaults) {
  const std::int64_t groups = config.size_or("n_group", kMostExperts, defaults.groups);
  const std::int64_t chosen = config.size_or("topk_group", kMostExperts, defaults.per_token);
  const std::string count = std::to_string(groups);
  if (experts.count % groups != 0) {
    config.fail("n_group", "expected groups that divide the " + std::to_string(experts.count) +
                               " experts, got " + count);
  }
  if (chosen > groups)
    config.fail("topk_group", "expected at most n_group, " + count + ", got " + std::to_string(chosen));
  if (chosen == groups) return;
  const std::int64_t of_group = experts.count / groups;
  if (of_group < defaults.top) {
    config.fail("n_group", "makes groups of " + std::to_string(of_group) + " experts; expected at least " +
                               std::to_string(defaults.top) + ", by which a group is scored");
  }
  if (experts.router.per_token > chosen * of_group) {
    config.fail("topk_group", "leaves a token " + std::to_string(chosen * of_group) +
                                  " experts to choose from, fewer than the " +
                                  std::to_string(experts.router.per_token) + " that it has");
  }
  experts.router.groups = groups;
  experts.router.groups_per_token = chosen;
  experts.router.group_top = defaults.top;
}

nn::ExpertsSpec read_sigmoid_experts(ConfigReader& config, const DecoderSizes& sizes,
                                     const SigmoidExpertsDefaults& defaults) {
  config.choice("scoring_func", "sigmoid", {"sigmoid"});
  config.choice("topk_method", "noaux_tc", {"noaux_tc"});
  nn::ExpertsSpec experts = read_experts(config, sizes, defaults.experts);
  read_expert_groups(config, experts, defaults.groups);
  experts.wide_router = true;
  experts.router.scores = ops::RouterScores::kSigmoid;
  experts.router.sum_eps = 1e-20;
  experts.router.scale = config.positive_or("routed_scaling_factor", kLargestScale, defaults.scale);
  experts.choice_bias = {"mlp.gate.e_score_correction_bias", {experts.count}};
  experts.shared = shared_experts(config, "n_shared_experts",
                                  config.size_or("n_shared_experts", kMostLayers, defaults.shared), experts);
  return experts;
}

void require_experts_everywhere(ConfigReader& config) {
  if (config.size_or("decoder_sparse_step", kMostLayers, 1) != 1)
    config.fail("decoder_sparse_step", "expected 1: layers without experts among others aren't built");
  if (config.has("mlp_only_layers") && !config.view().at("mlp_only_layers").items().empty())
    config.fail("mlp_only_layers",
                "expected an empty list: layers without experts among others aren't built");
}

std::vector<io::CheckpointNames::ExpertStack> gate_up_stacks(bool transposed, bool interleaved) {
  return {{.tensor = "gate_up_proj",
           .modules = {"gate_proj", "up_proj"},
           .interleaved = interleaved,
           .transposed = transposed},
          {.tensor = "down_proj", .modules = {"down_proj"}, .transposed = transposed}};
}

void set_experts(nn::CausalLMSpec& spec, const nn::ExpertsSpec& experts, const std::string& block,
                 const std::function<bool(std::int64_t)>& in_layer) {
  spec.shape.intermediate_size = experts.router.per_token * experts.intermediate_size +
                                 (experts.shared ? experts.shared->intermediate_size : 0);
  for (nn::DecoderLayerSpec& layer : spec.layers) {
    if (in_layer && !in_layer(layer.index)) continue;
    const std::string& mlp = layer.mlp.prefix;
    const std::string before = mlp.substr(0, mlp.rfind('.') + 1);
    layer.experts = experts;
    layer.experts->prefix = before + block;
    layer.experts->stacks.prefix = before + (experts.stacks.prefix.empty() ? "mlp" : experts.stacks.prefix);
    if (auto& bias = layer.experts->choice_bias) bias->name = before + bias->name;
  }
}

void set_experts_behind(nn::CausalLMSpec& spec, const nn::ExpertsSpec& experts, std::int64_t dense,
                        const std::string& block) {
  set_experts(spec, experts, block, [dense](std::int64_t layer) { return layer >= dense; });
}

void leave_mlps_to_names(nn::CausalLMSpec& spec) {
  for (nn::DecoderLayerSpec& layer : spec.layers) {
    layer.mlp.by_name_only = true;
    if (layer.experts && layer.experts->shared) layer.experts->shared->by_name_only = true;
  }
}

}  // namespace lorikeet::models
