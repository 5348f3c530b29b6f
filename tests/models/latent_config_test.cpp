// What the families with latent attention (DeepSeek V2 and V3, GLM-4.7-Flash, Youtu, MiniCPM3) read and
// refuse of a config.json.
#include <cmath>

#include "models/golden_config.h"
#include "nn/causal_lm.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kLite = "deepseek_v2/lite/config.json", kV2 = "deepseek_v2/groups/config.json",
                  kV3 = "deepseek_v3/groups/config.json", kHalves = "deepseek_v3/halves/config.json",
                  kGlm = "glm4_moe_lite/wide-values/config.json", kYoutu = "youtu/tied/config.json",
                  kMiniCpm = "minicpm3/multipliers/config.json";

nn::AttentionSpec attention_of(const std::string& variant, const std::string& changes = "{}") {
  return spec_of(variant, changes).layers.at(0).attention;
}

nn::LatentSpec latent_of(const std::string& variant, const std::string& changes = "{}") {
  return attention_of(variant, changes).latent.value();
}

// A letter a layer: e for experts, m for an MLP.
std::string blocks(const std::string& variant, const std::string& changes = "{}") {
  std::string letters;
  for (const nn::DecoderLayerSpec& layer : spec_of(variant, changes).layers)
    letters += layer.experts ? 'e' : 'm';
  return letters;
}

std::vector<std::string> names(const std::vector<nn::Module>& modules) {
  std::vector<std::string> all;
  for (const nn::Module& module : modules) all.push_back(module.name.substr(module.name.rfind('.') + 1));
  return all;
}

}  // namespace

TEST_CASE("latents' sizes are those of the file, and their classes' where it has none") {
  const nn::LatentSpec latent = latent_of(kV3);
  CHECK((latent.query_rank == 12 && latent.key_value_rank == 10));
  CHECK((latent.layout.heads == 4 && latent.layout.plain_dim == 6 && latent.layout.rotary_dim == 8));
  CHECK((latent.layout.value_dim == 14 && latent.layout.interleaved && latent.norm_eps == 1e-6));
  const std::string absent = R"({"q_lora_rank": "absent", "kv_lora_rank": "absent", "v_head_dim": "absent",
                                 "qk_nope_head_dim": "absent", "qk_rope_head_dim": "absent",
                                 "head_dim": "absent", "rope_interleave": "absent"})";
  const nn::LatentSpec of_class = latent_of(kV3, absent);
  CHECK((of_class.query_rank == 1536 && of_class.key_value_rank == 512));
  CHECK((of_class.layout.plain_dim == 128 && of_class.layout.rotary_dim == 64));
  CHECK((of_class.layout.value_dim == 128 && of_class.layout.interleaved));
  CHECK(latent_of(kGlm, absent).layout.value_dim == 256);
  CHECK(latent_of(kMiniCpm, R"({"v_head_dim": null})").layout.value_dim == 6);
  CHECK_FALSE(latent_of(kHalves).layout.interleaved);
  CHECK_FALSE(latent_of(kMiniCpm).layout.interleaved);
  CHECK(latent_of(kLite).layout.interleaved);
}

TEST_CASE("attention over latents is as wide as keys or values, whichever are wider") {
  const nn::AttentionSpec lite = attention_of(kLite), glm = attention_of(kGlm);
  CHECK((lite.layout.head_dim == 14 && lite.layout.kv_heads == 4 && lite.output_width() == 4 * 6));
  CHECK((glm.layout.head_dim == 16 && glm.output_width() == 4 * 16));
  CHECK(spec_of(kLite).shape.head_dim == 14);
  CHECK(spec_of(kLite).rotary.value().head_dim == 8);
  CHECK(lite.options.scale == Approx(1 / std::sqrt(14.0)));
}

TEST_CASE("the modules around latents have the checkpoint's names") {
  const nn::DecoderLayerSpec lite = spec_of(kLite).layers.at(0), v3 = spec_of(kV3).layers.at(0);
  using Names = std::vector<std::string>;
  CHECK(names(lite.mixer_inputs().at(0).modules) == Names{"q_proj", "kv_a_proj_with_mqa"});
  CHECK(names(v3.mixer_inputs().at(0).modules) == Names{"q_a_proj", "kv_a_proj_with_mqa"});
  CHECK(lite.mixer_inputs().size() == 1 + 1);
  CHECK(v3.mixer_inputs().size() == 1 + 2);
  CHECK(v3.mixer_inputs().at(1).modules.at(0).name == "model.layers.0.self_attn.q_b_proj");
  CHECK(v3.mixer_inputs().at(2).modules.at(0).name == "model.layers.0.self_attn.kv_b_proj");
  CHECK(v3.mixer_inputs().at(2).modules.at(0).out_features == 4 * (6 + 14));
  CHECK(lite.mixer_output().in_features == 4 * 6);
  // 24 x (12 + 18) + 12 x 56 + 10 x 80 + 56 x 24, and the MLP's 3 x 24 x 36, experts apart.
  const nn::CausalLMSpec dense = spec_of(kV3, R"({"first_k_dense_replace": 2})");
  CHECK(dense.shape.layer_linear_parameters == 2 * (720 + 672 + 800 + 1344 + 2592));
}

TEST_CASE("biases are those of the modules that make latents, and of the output") {
  const nn::DecoderLayerSpec biased = spec_of(kV3).layers.at(0), plain = spec_of(kLite).layers.at(0);
  CHECK((biased.mixer_inputs().at(0).bias && biased.mixer_output().bias));
  CHECK_FALSE((biased.mixer_inputs().at(1).bias || biased.mixer_inputs().at(2).bias));
  CHECK_FALSE((plain.mixer_inputs().at(0).bias || plain.mixer_output().bias));
}

TEST_CASE("yarn scales latent attention's scores by mscale_all_dim alone") {
  const auto scale = [](const std::string& rope) {
    return attention_of(kV3, R"({"rope_parameters": {"rope_theta": 100.0, )" + rope + "}}").options.scale *
           std::sqrt(14.0);
  };
  const double one = 0.1 * std::log(4.0) + 1, part = 0.1 * 0.7 * std::log(4.0) + 1;
  const std::string yarn = R"("rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64)";
  CHECK(scale(R"("rope_type": "default")") == Approx(1));
  CHECK(scale(yarn) == Approx(1));
  CHECK(scale(yarn + R"(, "mscale_all_dim": 0)") == Approx(1));
  CHECK(scale(yarn + R"(, "mscale": 1.0, "mscale_all_dim": 1.0)") == Approx(one * one));
  CHECK(scale(yarn + R"(, "mscale_all_dim": 0.7)") == Approx(part * part));
  CHECK(attention_of("deepseek_v3/groups/config-transformers-4.json").options.scale ==
        attention_of(kV3).options.scale);
  const nn::RotarySpec rotary = spec_of(kV2).rotary.value();
  CHECK(rotary.attention_factor == 1);  // of two that are alike
}

TEST_CASE("which layers of theirs have experts, and how these are chosen") {
  CHECK(blocks(kLite) == "me");
  CHECK(blocks(kLite, R"({"first_k_dense_replace": "absent"})") == "ee");
  CHECK(blocks(kV2) == "ee");
  CHECK(blocks(kV3) == "me");
  CHECK(blocks(kV3, R"({"first_k_dense_replace": "absent"})") == "mm");
  CHECK(blocks(kGlm) == "em");
  CHECK(blocks(kGlm, R"({"mlp_layer_types": "absent"})") == "me");
  CHECK(blocks(kYoutu) == "mm");
  const auto router = [](const std::string& variant, const std::string& changes = "{}") {
    return spec_of(variant, changes).layers.at(1).experts.value().router;
  };
  const ops::RouterOptions lite = router(kLite), v2 = router(kV2), v3 = router(kV3);
  CHECK((lite.scores == ops::RouterScores::kSoftmax && !lite.normalized && lite.scale == 1.7));
  CHECK((!lite.limits_groups() && v2.limits_groups()));
  CHECK((v2.groups == 4 && v2.groups_per_token == 2 && v2.group_top == 1));
  CHECK((v3.scores == ops::RouterScores::kSigmoid && v3.normalized && v3.scale == 2.5 && v3.group_top == 2));
  CHECK((v3.groups == 4 && v3.groups_per_token == 2));
  CHECK_FALSE(router(kHalves).normalized);
  // Groups say nothing where experts are chosen greedily.
  CHECK_FALSE(router(kV2, R"({"topk_method": "greedy"})").limits_groups());
  const nn::ExpertsSpec experts = spec_of(kLite).layers.at(1).experts.value();
  CHECK((experts.wide_router && !experts.choice_bias && experts.shared.value().intermediate_size == 48));
  CHECK((experts.shared.value().gate.empty() && experts.shared.value().by_name_only));
  CHECK(spec_of(kV3).layers.at(1).experts.value().choice_bias.value().name ==
        "model.layers.1.mlp.gate.e_score_correction_bias");
  CHECK(spec_of(kV3).checkpoint_names.other_parts.back() == "model.layers.2.");
}

TEST_CASE("MiniCPM3's multipliers are the file's, its class's, or none where they are null") {
  const nn::CausalLMSpec spec = spec_of(kMiniCpm);
  CHECK((spec.embedding_scale == 3 && spec.head.scale == 0.5 && spec.layers.at(0).mlp.bias));
  CHECK(spec.layers.at(1).residual_multiplier == Approx(0.9 / std::sqrt(2.0)));
  const nn::CausalLMSpec absent =
      spec_of(kMiniCpm, R"({"scale_emb": "absent", "scale_depth": "absent", "dim_model_base": "absent"})");
  CHECK((absent.embedding_scale == 12 && absent.head.scale == Approx(256.0 / 24)));
  CHECK(absent.layers.at(0).residual_multiplier == Approx(1.4 / std::sqrt(2.0)));
  const nn::CausalLMSpec none = spec_of(kMiniCpm, R"({"scale_depth": null, "dim_model_base": null})");
  CHECK((none.layers.at(0).residual_multiplier == Approx(1) && none.head.scale == 1));
  CHECK(spec.rotary.value().scaling == nn::RotarySpec::Scaling::kLongrope);
  CHECK(spec.rotary.value().original_max_position == 24);
}

TEST_CASE("what latent attention's families have no meaning for is refused") {
  check_refused({
      {kV3, R"({"qk_rope_head_dim": 7})", "qk_rope_head_dim] expected an even number, got 7"},
      {kV3, R"({"num_key_value_heads": 2})", "num_key_value_heads] expected num_attention_heads, 4, got 2"},
      {kV3, R"({"head_dim": 24})", "head_dim] expected qk_rope_head_dim, 8, got 24"},
      {kV3, R"({"kv_lora_rank": 0})", "kv_lora_rank] expected an integer from 1"},
      {kV3, R"({"q_lora_rank": -1})", "q_lora_rank] expected an integer from 1"},
      {kV3, R"({"v_head_dim": 4194304})", "have rows over"},
      {kV3, R"({"q_lora_rank": null})", "attention_bias] expected false without q_lora_rank"},
      {kV3, R"({"scoring_func": "softmax"})", "scoring_func"},
      {kV3, R"({"topk_method": "greedy"})", "topk_method"},
      {kV3, R"({"moe_layer_freq": 2})", "moe_layer_freq] expected 1"},
      {kV3, R"({"hidden_act": "gelu"})", "hidden_act"},
      {kV3, R"({"n_group": 5})", "n_group] expected groups that divide the 12 experts"},
      {kLite, R"({"norm_topk_prob": true})", "norm_topk_prob"},
      {kLite, R"({"mlp_bias": true})", "mlp_bias"},
      {kLite, R"({"rope_interleave": false})", "rope_interleave"},
      {kV2, R"({"n_group": "absent"})", "n_group] is missing"},
      {kV2, R"({"topk_group": null})", "topk_group] is missing"},
      {kGlm, R"({"head_dim": 14})", "head_dim] expected qk_rope_head_dim, 8, got 14"},
      {kGlm, R"({"topk_method": "greedy"})", "topk_method"},
      {kV3, R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                "beta_fast": 4.0, "beta_slow": 1.0, "attention_factor": 1.0}})",
       "differ in mscale_all_dim"},
      {kLite, R"({"topk_method": "noaux_tc"})", "topk_method"},
      {kLite, R"({"num_experts_per_tok": null})", "num_experts_per_tok] is missing"},
      {kGlm, R"({"mlp_layer_types": ["sparse"]})",
       "mlp_layer_types] expected one for each of num_hidden_layers"},
      {kGlm, R"({"mlp_layer_types": ["sparse", "thin"]})", "mlp_layer_types] expected dense or sparse"},
      {kGlm, R"({"mlp_layer_types": "absent", "first_k_dense_replace": 2})",
       "first_k_dense_replace] expected 1"},
      {kMiniCpm, R"({"scale_emb": -1})", "scale_emb] expected a number above 0"},
      {kMiniCpm, R"({"rope_interleave": true})", "rope_interleave"},
  });
}
