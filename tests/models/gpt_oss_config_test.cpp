// What gpt-oss and the other families whose files stack experts read and refuse of a config.json.
#include "models/golden_config.h"
#include "nn/architecture.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kGptOss = "gpt_oss/windows/config.json";
const std::string kOld = "gpt_oss/windows/config-transformers-4.json";
const std::string kQwen3 = "qwen3_vl_moe/experts/config.json";

std::vector<std::int64_t> windows(const std::string& changes) {
  std::vector<std::int64_t> all;
  for (const nn::DecoderLayerSpec& layer : spec_of(kGptOss, changes).layers)
    all.push_back(layer.attention.options.window);
  return all;
}

}  // namespace

TEST_CASE("gpt-oss has sinks, biases everywhere, clamped experts that get adapters as stacks alone") {
  const nn::CausalLMSpec spec = spec_of(kGptOss);
  CHECK(spec.shape.intermediate_size == 2 * 64);
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    CHECK(layer.attention.sinks);
    CHECK(layer.attention.qkv_bias);
    CHECK(layer.attention.output_bias);
    REQUIRE(layer.experts.has_value());
    CHECK(layer.experts->count == 4);
    CHECK(layer.experts->router.per_token == 2);
    CHECK(layer.experts->router.normalized);
    CHECK(layer.experts->router_bias);
    CHECK(layer.experts->bias);
    CHECK(layer.experts->stacks.only);
    CHECK(layer.experts->activation == ops::Activation::kClampedSwiglu);
  }
  const nn::ExpertsSpec& experts = *spec.layers.at(1).experts;
  CHECK(experts.router_module().name == "model.layers.1.mlp.router");
  CHECK(experts.down_module(2).name == "model.layers.1.mlp.experts.2.down_proj");
  CHECK(experts.gate_up_group(2).slice->order == nn::RowOrder{.groups = 64, .parts = {1, 1}});
  CHECK(experts.down_group(2).slice->order.is_identity());
  CHECK_FALSE(spec_of(kGptOss, R"({"attention_bias": false})").layers.at(0).attention.output_bias);
  CHECK(nn::architecture(spec_of(kOld)) == nn::architecture(spec));
}

TEST_CASE("gpt-oss has a window in every other layer from the first on, or where layer_types says so") {
  CHECK(windows("{}") == std::vector<std::int64_t>{8, 0});
  CHECK(windows(R"({"layer_types": "absent"})") == std::vector<std::int64_t>{8, 0});
  CHECK(windows(R"({"layer_types": ["full_attention", "sliding_attention"]})") ==
        std::vector<std::int64_t>{0, 8});
}

TEST_CASE("what a file of gpt-oss leaves out is as transformers' class has it") {
  const nn::CausalLMSpec spec = spec_of(kGptOss, R"({"num_key_value_heads": 4, "head_dim": "absent",
      "num_local_experts": "absent", "num_experts_per_tok": "absent", "rms_norm_eps": "absent",
      "swiglu_alpha": "absent", "swiglu_limit": "absent", "attention_bias": "absent"})");
  CHECK(spec.shape.head_dim == 64);
  CHECK(spec.layers.at(0).experts->count == 128);
  CHECK(spec.layers.at(0).experts->router.per_token == 4);
  CHECK(spec.final_norm.eps == 1e-5);
  CHECK(spec.layers.at(0).attention.qkv_bias);
}

TEST_CASE("gpt-oss files that ask for something else are refused by name") {
  check_refused({{kGptOss, R"({"swiglu_limit": 10.0})", "swiglu_limit] expected 7"},
                 {kGptOss, R"({"swiglu_alpha": 1.5})", "swiglu_alpha] expected 1.702"},
                 {kGptOss, R"({"hidden_act": "gelu"})", "hidden_act]"},
                 {kGptOss, R"({"num_experts_per_tok": 5})", "num_experts_per_tok] expected at most"},
                 {kGptOss, R"({"output_router_logits": true})", "output_router_logits]"},
                 {kGptOss, R"({"layer_types": ["full_attention"]})", "layer_types] expected one for each"},
                 {kGptOss, R"({"num_experts": 3})", "num_experts] 3 contradicts num_local_experts 4"},
                 {kGptOss, R"({"mlp_bias": true})", "mlp_bias] the family gpt_oss"}});
}

TEST_CASE("Qwen3-VL with experts reads them from its text_config") {
  const nn::CausalLMSpec spec = spec_of(kQwen3);
  CHECK(spec.shape.intermediate_size == 2 * 32);
  const nn::ExpertsSpec& experts = *spec.layers.at(1).experts;
  CHECK(experts.count == 5);
  CHECK(experts.stacks.only);
  CHECK(experts.router.normalized);
  CHECK(experts.router_module().name == "model.language_model.layers.1.mlp.gate");
  CHECK(experts.down_module(2).name == "model.language_model.layers.1.mlp.experts.2.down_proj");
  CHECK(spec.layers.at(1).attention.qk_norm.has_value());
  const nn::ExpertsSpec defaults = *spec_of(kQwen3, R"({"text_config.num_local_experts": "absent",
      "text_config.num_experts_per_tok": "absent", "text_config.moe_intermediate_size": "absent"})")
                                        .layers.at(0)
                                        .experts;
  CHECK(defaults.count == 60);
  CHECK(defaults.router.per_token == 4);
  CHECK(defaults.intermediate_size == 1408);
  check_refused(
      {{kQwen3, R"({"text_config.norm_topk_prob": false})", "norm_topk_prob] false is not supported"},
       {kQwen3, R"({"text_config.decoder_sparse_step": 2})", "decoder_sparse_step] expected 1"},
       {kQwen3, R"({"text_config.mlp_only_layers": [1]})", "mlp_only_layers] expected an empty list"},
       {kQwen3, R"({"text_config.model_type": "qwen3_vl_text"})",
        "model_type] expected 'qwen3_vl_moe_text'"}});
}
