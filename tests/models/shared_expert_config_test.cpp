// What the families whose experts have a shared one beside them read and refuse of a config.json.
#include "base/file.h"
#include "models/golden_config.h"
#include "models/registry.h"
#include "nn/architecture.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kQwen2 = "qwen2_moe/plain/config.json";
const std::string kWindows = "qwen2_moe/windows-normalized/config.json";
const std::string kNext = "qwen3_next/fused/config.json";
const std::string kText = "qwen3_5_moe_text/experts/config.json";
const std::string kNested = "qwen3_5_moe/nested-tied/config.json";

// Every variant, and what its settings' names begin with in changes.
const std::vector<std::pair<std::string, std::string>> kAll = {
    {kQwen2, ""}, {kWindows, ""}, {kNext, ""}, {kText, ""}, {kNested, "text_config."}};

nn::CausalLMSpec published(const std::string& size) {
  const auto path = test::source_dir() / "recipes/configs" / (size + ".config.json");
  return models::model_spec(JsonView(Json::parse(read_file(path), "config.json"), "config.json"));
}

nn::ExpertsSpec experts_of(const std::string& variant, const std::string& changes = "{}") {
  return spec_of(variant, changes).layers.at(1).experts.value();
}

std::string change(const std::string& prefix, const std::string& key, const std::string& value) {
  return R"({")" + prefix + key + R"(": )" + value + "}";
}

std::vector<std::int64_t> windows(const std::string& changes) {
  std::vector<std::int64_t> all;
  for (const nn::DecoderLayerSpec& layer : spec_of(kWindows, changes).layers)
    all.push_back(layer.attention.options.window);
  return all;
}

}  // namespace

TEST_CASE("every layer has routed experts and a shared one with its gate, under the checkpoint's names") {
  for (const auto& [variant, prefix] : kAll) {
    CAPTURE(variant);
    const nn::CausalLMSpec spec = spec_of(variant);
    const std::string model = prefix.empty() ? "model" : "model.language_model";
    for (const nn::DecoderLayerSpec& layer : spec.layers) {
      REQUIRE(layer.experts.has_value());
      REQUIRE(layer.experts->shared.has_value());
      CHECK(layer.experts->intermediate_size == 24);
      CHECK(layer.experts->shared->intermediate_size == 28);
    }
    const nn::ExpertsSpec& experts = *spec.layers.at(1).experts;
    CHECK(spec.shape.intermediate_size == experts.router.per_token * 24 + 28);
    const std::string block = model + ".layers.1.mlp.";
    CHECK(experts.router_module().name == block + "gate");
    CHECK(experts.down_module(2).name == block + "experts.2.down_proj");
    CHECK(experts.shared_gate_module().name == block + "shared_expert_gate");
    CHECK(experts.shared_gate_module().out_features == 1);
    const nn::MlpSpec mlp = experts.shared_mlp();
    CHECK(mlp.gate_up_modules().at(0).name == block + "shared_expert.gate_proj");
    CHECK(mlp.gate_up_modules().at(1).name == block + "shared_expert.up_proj");
    CHECK(mlp.down_module().name == block + "shared_expert.down_proj");
    CHECK(mlp.down_module().out_features == 24);
  }
}

TEST_CASE("all-linear leaves the shared expert out in Qwen3-Next, where PEFT passes over it") {
  for (const auto& variant : {kQwen2, kText, kNested})
    CHECK_FALSE(experts_of(variant).shared_mlp().by_name_only);
  CHECK(experts_of(kNext).shared_mlp().by_name_only);
}

TEST_CASE("a shared expert's parameters are passed by every token") {
  const nn::ModelShape shape = spec_of(kQwen2).shape;
  constexpr std::int64_t kQkv = 24 * (24 + 12 + 12), kOutput = 24 * 24, kExpert = 3 * 24 * 24;
  constexpr std::int64_t kPassed = 24 * 6 + 3 * 24 * 28 + 24;  // router, shared expert and its gate
  CHECK(shape.layer_linear_parameters == 2 * (kQkv + kOutput + kPassed + 6 * kExpert));
  CHECK(shape.token_parameters() == 2 * (kQkv + kOutput + kPassed + 3 * kExpert));
  CHECK(shape.output_row_parameters == kOutput + kPassed + 3 * kExpert);
}

TEST_CASE("norm_topk_prob counts in Qwen2-MoE and Qwen3-Next; those of Qwen 3.5 always normalise") {
  for (const auto& variant : {kQwen2, kWindows, kNext}) {
    CAPTURE(variant);
    CHECK(experts_of(variant, R"({"norm_topk_prob": true})").router.normalized);
    CHECK_FALSE(experts_of(variant, R"({"norm_topk_prob": false})").router.normalized);
  }
  for (const auto& [variant, prefix] : {std::pair{kText, ""}, {kNested, "text_config."}}) {
    CHECK(experts_of(variant).router.normalized);
    CHECK(experts_of(variant, change(prefix, "norm_topk_prob", "true")).router.normalized);
    check_refused({{variant, change(prefix, "norm_topk_prob", "false"),
                    "norm_topk_prob] false is not supported: transformers always does"}});
  }
}

TEST_CASE("what a file with a shared expert leaves out is as transformers' classes have it") {
  const auto absent = [](const std::string& prefix) {
    std::string all = "{";
    for (const char* key :
         {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
          "norm_topk_prob", "intermediate_size", "decoder_sparse_step", "mlp_only_layers", "qkv_bias"})
      all += (all.size() > 1 ? ", \"" : "\"") + prefix + key + R"(": "absent")";
    return all + "}";
  };
  struct Defaults {
    std::int64_t count, per_token, width, shared;
    bool normalized;
  };
  const auto check = [&](const std::string& variant, const std::string& prefix, const Defaults& wanted) {
    CAPTURE(variant);
    const nn::ExpertsSpec experts = experts_of(variant, absent(prefix));
    CHECK(experts.count == wanted.count);
    CHECK(experts.router.per_token == wanted.per_token);
    CHECK(experts.intermediate_size == wanted.width);
    CHECK(experts.shared->intermediate_size == wanted.shared);
    CHECK(experts.router.normalized == wanted.normalized);
  };
  check(kQwen2, "", {60, 4, 1408, 5632, false});
  check(kNext, "", {512, 10, 512, 512, true});
  check(kText, "", {256, 8, 512, 512, true});
  check(kNested, "text_config.", {256, 8, 512, 512, true});
  CHECK(spec_of(kWindows, absent("")).layers.at(0).attention.qkv_bias);
  CHECK(spec_of(kNext, R"({"num_key_value_heads": "absent"})").shape.kv_heads == 2);
  CHECK(spec_of(kText, R"({"num_key_value_heads": "absent"})").shape.kv_heads == 2);
  CHECK(spec_of(kNext, R"({"head_dim": "absent"})").shape.head_dim == 256);
}

TEST_CASE("Qwen2-MoE has biases on q, k and v unless qkv_bias says otherwise, and none on o") {
  const nn::AttentionSpec biased = spec_of(kQwen2).layers.at(0).attention;
  CHECK(biased.qkv_bias);
  CHECK_FALSE(biased.output_bias);
  CHECK_FALSE(spec_of(kWindows).layers.at(0).attention.qkv_bias);
}

TEST_CASE("Qwen2-MoE's windows are those of layer_types") {
  CHECK(windows("{}") == std::vector<std::int64_t>{0, 8});
  CHECK(windows(R"({"layer_types": ["sliding_attention", "sliding_attention"]})") ==
        std::vector<std::int64_t>{8, 8});
  CHECK(windows(R"({"use_sliding_window": false, "layer_types": "absent"})") ==
        std::vector<std::int64_t>{0, 0});
  check_refused(
      {{kWindows, R"({"layer_types": "absent"})", "layer_types] is missing, but use_sliding_window"},
       {kWindows, R"({"use_sliding_window": false})", "layer_types] has sliding_attention, but"},
       {kWindows, R"({"sliding_window": null})", "sliding_window] is missing, but layers slide"}});
}

TEST_CASE("Qwen3-Next's delta nets have fused modules, whose rows go by key heads") {
  const nn::GatedDeltaNetSpec net = spec_of(kNext).layers.at(0).delta_net.value();
  const std::string prefix = "model.layers.0.linear_attn.";
  REQUIRE(net.input_modules().size() == 1);
  REQUIRE(net.gate_modules().size() == 1);
  const nn::Module qkvz = net.input_modules().at(0), ba = net.gate_modules().at(0);
  CHECK(qkvz.name == prefix + "in_proj_qkvz");
  CHECK(qkvz.out_features == 2 * 2 * 6 + 2 * 4 * 10);
  CHECK(qkvz.order == nn::RowOrder{2, {6, 6, 20, 20}, 1});
  CHECK(ba.name == prefix + "in_proj_ba");
  CHECK(ba.out_features == 2 * 4);
  CHECK(ba.order == nn::RowOrder{2, {2, 2}, 1});
  CHECK(net.output_module().name == prefix + "out_proj");
}

TEST_CASE("a published Qwen3-Next is three delta nets to each attention, of which a quarter is rotated") {
  const nn::CausalLMSpec spec = published("qwen3_next/80B");
  CHECK(spec.layers.size() == 48);
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    CHECK(spec.layers[i].delta_net.has_value() == (i % 4 != 3));
  CHECK(spec.rotary->rotary_dim == 64);
  CHECK(spec.rotary->theta == 1e7);
  const nn::AttentionSpec& attention = spec.layers.at(3).attention;
  CHECK(attention.output_gate);
  CHECK(attention.qk_norm->q.unit_offset);
  CHECK((spec.final_norm.unit_offset && spec.layers[0].mlp_norm->unit_offset));
  CHECK(spec.checkpoint_names.other_parts == std::vector<std::string>{"mtp."});
}

TEST_CASE("a multimodal Qwen 3.5 with experts has both classes' names") {
  const io::CheckpointNames names = spec_of(kNested).checkpoint_names;
  const std::string own = "model.language_model.layers.0.mlp.shared_expert.up_proj",
                    other = "model.layers.0.mlp.shared_expert.up_proj";
  CHECK(names.in_files(own) == std::vector<std::string>{own, other});
  CHECK(spec_of(kText).checkpoint_names.in_files(other) == std::vector<std::string>{other, own});
  check_refused({{kNested, R"({"text_config.model_type": "qwen3_5_text"})",
                  "text_config: model_type] expected 'qwen3_5_moe_text'"}});
}

TEST_CASE("what the families with a shared expert have no meaning for is refused where it isn't off") {
  struct Case {
    std::string key, value, problem;
  };
  const Case cases[] = {
      {"shared_expert_intermediate_size", "0", "shared_expert_intermediate_size] expected an integer from 1"},
      {"decoder_sparse_step", "2", "decoder_sparse_step] expected 1"},
      {"mlp_only_layers", "[0]", "mlp_only_layers] expected an empty list"},
      {"output_router_logits", "true", "output_router_logits] true is not"},
      {"num_experts_per_tok", "9", "num_experts_per_tok] expected at most the number of experts"},
      {"hidden_act", R"("gelu")", "hidden_act] expected 'silu'"},
      {"mlp_bias", "true", "mlp_bias] the family"},
      {"quantization_config", R"({"bits": 4})", "quantization_config] the family"}};
  for (const auto& [variant, prefix] : kAll) {
    for (const Case& of : cases) check_refused({{variant, change(prefix, of.key, of.value), of.problem}});
  }
  check_refused({{kQwen2, R"({"attention_bias": true})", "attention_bias] the family qwen2_moe"},
                 {kNext, R"({"use_sliding_window": true})", "use_sliding_window] the family qwen3_next"}});
}

TEST_CASE("both layouts of a file with a shared expert are one architecture") {
  for (const auto& variant : {kQwen2, kWindows, kNext, kText, kNested}) {
    std::string older = variant;
    older.replace(older.rfind("config.json"), 11, "config-transformers-4.json");
    CHECK(nn::architecture(spec_of(older)) == nn::architecture(spec_of(variant)));
  }
}
