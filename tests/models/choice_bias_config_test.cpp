// What the families whose experts are chosen with a bias (LFM2 MoE, GLM-4.5, ERNIE 4.5 MoE) read and refuse
// of a config.json.
#include "models/golden_config.h"
#include "nn/causal_lm.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kLfm2 = "lfm2_moe/experts/config.json", kGlm = "glm4_moe/biases/config.json",
                  kErnie = "ernie4_5_moe/shared/config.json";

// A letter a layer: e for experts, m for an MLP.
std::string blocks(const std::string& variant, const std::string& changes = "{}") {
  std::string letters;
  for (const nn::DecoderLayerSpec& layer : spec_of(variant, changes).layers)
    letters += layer.experts ? 'e' : 'm';
  return letters;
}

nn::ExpertsSpec experts_of(const std::string& variant, const std::string& changes = "{}") {
  return spec_of(variant, changes).layers.at(1).experts.value();
}

}  // namespace

TEST_CASE(
    "which layers have experts is said by the number of those that have none, or by a first and a last") {
  CHECK(blocks(kLfm2) == "meee");
  CHECK(blocks(kLfm2, R"({"num_dense_layers": 0})") == "eeee");
  CHECK(blocks(kLfm2, R"({"num_dense_layers": "absent"})") == "mmee");
  CHECK(blocks(kGlm) == "mee");
  CHECK(blocks(kGlm, R"({"first_k_dense_replace": 3})") == "mmm");
  CHECK(blocks(kErnie) == "meem");
  CHECK(blocks(kErnie, R"({"moe_layer_end_index": -1})") == "meee");
  CHECK(blocks(kErnie, R"({"moe_layer_end_index": 27})") == "meee");
  CHECK(blocks(kErnie, R"({"moe_layer_start_index": 0, "moe_layer_interval": 2})") == "memm");
}

TEST_CASE("how their routers choose and weigh") {
  const nn::ExpertsSpec lfm2 = experts_of(kLfm2), glm = experts_of(kGlm), ernie = experts_of(kErnie);
  CHECK((lfm2.router.scores == ops::RouterScores::kSigmoid && glm.router.scores == lfm2.router.scores));
  CHECK(ernie.router.scores == ops::RouterScores::kSoftmax);
  CHECK((lfm2.router.scale == 1.7 && glm.router.scale == 1.7 && ernie.router.scale == 1));
  CHECK((lfm2.router.sum_eps == 1e-6 && glm.router.sum_eps == 1e-20 && ernie.router.least_sum == 1e-12));
  CHECK((glm.wide_router && ernie.wide_router && !lfm2.wide_router));
  CHECK(lfm2.choice_bias.value().name == "model.layers.1.feed_forward.expert_bias");
  CHECK(glm.choice_bias.value().name == "model.layers.1.mlp.gate.e_score_correction_bias");
  CHECK(ernie.choice_bias.value().name == "model.layers.1.mlp.moe_statics.e_score_correction_bias");
  CHECK(ernie.choice_bias.value().shape == std::vector<std::int64_t>{1, 5});
  CHECK_FALSE(experts_of(kLfm2, R"({"use_expert_bias": false})").choice_bias);
}

TEST_CASE("their shared experts are one as wide as all, without a gate") {
  CHECK_FALSE(experts_of(kLfm2).shared);
  for (const nn::ExpertsSpec& experts : {experts_of(kGlm), experts_of(kErnie)}) {
    CHECK(experts.shared.value().intermediate_size == 48);
    CHECK(experts.shared.value().gate.empty());
    CHECK(experts.shared.value().by_name_only);
  }
  CHECK_FALSE(experts_of(kErnie, R"({"moe_num_shared_experts": 0})").shared);
}

TEST_CASE("groups of experts limit a token's choice where they aren't all chosen") {
  const auto router = [](const std::string& changes) { return experts_of(kGlm, changes).router; };
  const ops::RouterOptions groups = router(R"({"n_group": 4, "topk_group": 2, "n_routed_experts": 8})");
  CHECK((groups.groups == 4 && groups.groups_per_token == 2 && groups.group_top == 2));
  for (const char* all :
       {"{}", R"({"n_group": 5, "topk_group": 5})", R"({"n_group": null, "topk_group": null})"})
    CHECK((router(all).groups == 1 && router(all).groups_per_token == 1));
  check_refused({{kGlm, R"({"n_group": 2})", "n_group"},
                 {kGlm, R"({"n_group": 0})", "n_group"},
                 {kGlm, R"({"topk_group": 2})", "topk_group"},
                 {kGlm, R"({"n_group": 5, "topk_group": 2})", "n_group"},
                 {kGlm, R"({"n_group": 2, "n_routed_experts": 8, "num_experts_per_tok": 5})", "topk_group"}});
}

TEST_CASE("layers that predict tokens further ahead are other parts of a GLM checkpoint") {
  using Parts = std::vector<std::string>;
  const auto parts = [](const std::string& changes) {
    return spec_of(kGlm, changes).checkpoint_names.other_parts;
  };
  CHECK(parts("{}") == Parts{"model.layers.3."});
  CHECK(parts(R"({"num_nextn_predict_layers": 2})") == Parts{"model.layers.3.", "model.layers.4."});
}

TEST_CASE("these families refuse what changes their numbers and isn't read") {
  check_refused({{kLfm2, R"({"layer_types": "absent"})", "layer_types"},
                 {kLfm2, R"({"num_dense_layers": -1})", "num_dense_layers"},
                 {kLfm2, R"({"num_experts_per_tok": 6})", "num_experts_per_tok"},
                 {kLfm2, R"({"routed_scaling_factor": 0})", "routed_scaling_factor"},
                 {kGlm, R"({"n_shared_experts": 0})", "n_shared_experts"},
                 {kGlm, R"({"first_k_dense_replace": null})", "first_k_dense_replace"},
                 {kErnie, R"({"moe_norm_min": 0.1})", "moe_norm_min"},
                 {kErnie, R"({"moe_layer_end_index": -2})", "moe_layer_end_index"},
                 {kErnie, R"({"moe_layer_start_index": 1.5})", "moe_layer_start_index"},
                 {kErnie, R"({"use_bias": true})", "use_bias"},
                 {kErnie, R"({"output_router_logits": true})", "output_router_logits"}});
}
