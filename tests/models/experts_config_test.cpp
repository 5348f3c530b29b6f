// What the families with mixtures of experts read and refuse of a config.json.
#include "models/golden_config.h"
#include "nn/architecture.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kQwen3 = "qwen3_moe/normalized/config.json";
const std::string kWindow = "qwen3_moe/window-biases/config.json";
const std::string kMixtral = "mixtral/window/config.json";
const std::string kOlmoe = "olmoe/plain/config.json";
const std::vector<std::string> kAll = {kQwen3, kWindow, kMixtral, kOlmoe};

nn::ExpertsSpec experts_of(const std::string& variant, const std::string& changes = "{}") {
  return spec_of(variant, changes).layers.at(0).experts.value();
}

std::int64_t window_of(const std::string& variant, const std::string& changes) {
  return spec_of(variant, changes).layers.at(0).attention.options.window;
}

// Modules of the second layer: the router, and those of its third expert.
struct Names {
  std::string router, gate, up, down;
};

void check_names(const std::string& variant, const Names& names) {
  CAPTURE(variant);
  const nn::ExpertsSpec experts = spec_of(variant).layers.at(1).experts.value();
  CHECK(experts.router_module().name == names.router);
  CHECK(experts.gate_up_modules(2).at(0).name == names.gate);
  CHECK(experts.gate_up_modules(2).at(1).name == names.up);
  CHECK(experts.down_module(2).name == names.down);
}

}  // namespace

TEST_CASE("every layer has experts of the file's number and width, under the checkpoint's names") {
  for (const auto& [variant, count, per_token, width] :
       {std::tuple{kQwen3, 6, 3, 24}, {kWindow, 5, 2, 24}, {kMixtral, 4, 2, 40}, {kOlmoe, 4, 2, 40}}) {
    CAPTURE(variant);
    const nn::CausalLMSpec spec = spec_of(variant);
    CHECK(spec.shape.intermediate_size == per_token * width);
    for (const nn::DecoderLayerSpec& layer : spec.layers) {
      REQUIRE(layer.experts.has_value());
      CHECK(layer.experts->count == count);
      CHECK(layer.experts->router.per_token == per_token);
      CHECK(layer.experts->intermediate_size == width);
      CHECK(layer.experts->hidden_size == 24);
    }
  }
  check_names(kMixtral, {.router = "model.layers.1.block_sparse_moe.gate",
                         .gate = "model.layers.1.block_sparse_moe.experts.2.w1",
                         .up = "model.layers.1.block_sparse_moe.experts.2.w3",
                         .down = "model.layers.1.block_sparse_moe.experts.2.w2"});
  for (const auto& variant : {kQwen3, kOlmoe})
    check_names(variant, {.router = "model.layers.1.mlp.gate",
                          .gate = "model.layers.1.mlp.experts.2.gate_proj",
                          .up = "model.layers.1.mlp.experts.2.up_proj",
                          .down = "model.layers.1.mlp.experts.2.down_proj"});
}

TEST_CASE("an expert's groups are slices of the parameters that transformers 5 has") {
  for (const auto& variant : {kQwen3, kMixtral, kOlmoe}) {
    const nn::ExpertsSpec experts = spec_of(variant).layers.at(1).experts.value();
    const nn::GroupSpec up = experts.gate_up_group(2), down = experts.down_group(2);
    CHECK(up.slice->parameter == "model.layers.1.mlp.experts.gate_up_proj");
    CHECK(up.slice->name() == "model.layers.1.mlp.experts.2.gate_up_proj");
    CHECK(up.slice->count == experts.count);
    CHECK(up.slice->order.is_identity());
    CHECK(down.slice->parameter == "model.layers.1.mlp.experts.down_proj");
    CHECK_FALSE(down.slice->only);
  }
}

TEST_CASE("of a model's parameters those count as idle that a token's experts leave out") {
  const nn::ModelShape shape = spec_of(kMixtral).shape;
  constexpr std::int64_t kQkv = 24 * (32 + 16 + 16), kOutput = 32 * 24, kRouter = 24 * 4,
                         kExpert = 3 * 24 * 40;
  CHECK(shape.layer_linear_parameters == 2 * (kQkv + kOutput + kRouter + 4 * kExpert));
  CHECK(shape.idle_expert_parameters == 2 * 2 * kExpert);
  CHECK(shape.token_parameters() == 2 * (kQkv + kOutput + kRouter + 2 * kExpert));
  CHECK(shape.output_row_parameters == kOutput + kRouter + 2 * kExpert);
  CHECK(spec_of("mistral/window-head-dim/config.json").shape.idle_expert_parameters == 0);
}

TEST_CASE("the number of experts has two names, which may not contradict each other") {
  for (const auto& variant : kAll) {
    CAPTURE(variant);
    const auto count = [&](const std::string& changes) { return experts_of(variant, changes).count; };
    CHECK(count(R"({"num_experts": 9, "num_local_experts": "absent"})") == 9);
    CHECK(count(R"({"num_experts": "absent", "num_local_experts": 9})") == 9);
    CHECK(count(R"({"num_experts": 9, "num_local_experts": 9})") == 9);
    CHECK(count(R"({"num_experts": null, "num_local_experts": 9})") == 9);
    check_refused({{variant, R"({"num_experts": 9, "num_local_experts": 8})",
                    "num_experts] 9 contradicts num_local_experts 8"},
                   {variant, R"({"num_experts": 0})", "num_experts] expected an integer from 1"},
                   {variant, R"({"num_local_experts": 4097})", "num_local_experts] expected an integer"}});
  }
}

TEST_CASE("a token passes at least one expert, and no more than there are") {
  for (const auto& variant : kAll) {
    const auto count = std::to_string(experts_of(variant).count);
    CHECK(experts_of(variant, R"({"num_experts_per_tok": )" + count + "}").router.per_token ==
          experts_of(variant).count);
    check_refused({{variant, R"({"num_experts_per_tok": 7})",
                    "num_experts_per_tok] expected at most the number of experts, " + count + ", got 7"},
                   {variant, R"({"num_experts_per_tok": 0})", "num_experts_per_tok] expected an integer"}});
  }
}

TEST_CASE("experts have a bounded number of rows together") {
  // 2^22 in all.
  CHECK(experts_of(kQwen3, R"({"num_local_experts": 4096, "moe_intermediate_size": 1024})").count == 4096);
  check_refused({{kQwen3, R"({"num_local_experts": 4096, "moe_intermediate_size": 1025})",
                  "moe_intermediate_size] expected at most 4194304 rows in all experts, got 4096 experts of "
                  "1025"},
                 {kMixtral, R"({"intermediate_size": 1048577})", "intermediate_size] expected at most"},
                 {kOlmoe, R"({"intermediate_size": 1048577})", "intermediate_size] expected at most"},
                 {kQwen3, R"({"moe_intermediate_size": 0})", "moe_intermediate_size] expected an integer"}});
}

TEST_CASE("norm_topk_prob says whether a token's weights are normalised; Mixtral's always are") {
  for (const auto& variant : {kQwen3, kWindow, kOlmoe}) {
    CAPTURE(variant);
    CHECK(experts_of(variant, R"({"norm_topk_prob": true})").router.normalized);
    CHECK_FALSE(experts_of(variant, R"({"norm_topk_prob": false})").router.normalized);
  }
  CHECK(experts_of(kMixtral).router.normalized);
}

TEST_CASE("a loss that balances experts and noise at the router are refused where they aren't off") {
  for (const auto& variant : kAll) {
    check_refused({{variant, R"({"output_router_logits": true})", "output_router_logits] true is not"},
                   {variant, R"({"router_jitter_noise": 0.1})", "router_jitter_noise] expected 0"}});
    CHECK_NOTHROW(spec_of(variant, R"({"output_router_logits": "absent", "router_jitter_noise": null})"));
    CHECK_NOTHROW(spec_of(variant, R"({"output_router_logits": null, "router_jitter_noise": 0})"));
  }
}

TEST_CASE("layers without experts among others are refused") {
  check_refused({{kQwen3, R"({"decoder_sparse_step": 2})", "decoder_sparse_step] expected 1"},
                 {kQwen3, R"({"decoder_sparse_step": 0})", "decoder_sparse_step] expected an integer"},
                 {kQwen3, R"({"mlp_only_layers": [1]})", "mlp_only_layers] expected an empty list"},
                 {kQwen3, R"({"mlp_only_layers": 1})", "mlp_only_layers"}});
  CHECK_NOTHROW(spec_of(kQwen3, R"({"decoder_sparse_step": "absent", "mlp_only_layers": "absent"})"));
  CHECK_NOTHROW(spec_of(kQwen3, R"({"decoder_sparse_step": null, "mlp_only_layers": null})"));
}

TEST_CASE("Qwen3-MoE's layers share one window, which use_sliding_window switches on") {
  for (const nn::DecoderLayerSpec& layer : spec_of(kWindow).layers)
    CHECK(layer.attention.options.window == 8);
  CHECK(window_of(kWindow, R"({"max_window_layers": 1})") == 8);
  CHECK(window_of(kWindow, R"({"use_sliding_window": false})") == 0);
  CHECK(window_of(kWindow, R"({"use_sliding_window": "absent"})") == 0);
  CHECK(window_of(kWindow, R"({"sliding_window": null})") == 0);
  CHECK(window_of(kQwen3, R"({"sliding_window": 4096, "max_window_layers": 48})") == 0);
  check_refused({{kWindow, R"({"sliding_window": 0})", "sliding_window] expected an integer from 1"},
                 {kWindow, R"({"sliding_window": "absent"})", "sliding_window] is missing"}});
  CHECK(window_of(kMixtral, R"({"sliding_window": null})") == 0);
  CHECK(window_of(kMixtral, R"({"sliding_window": "absent"})") == 0);
  check_refused({{kMixtral, R"({"sliding_window": 0})", "sliding_window] expected an integer from 1"},
                 {kOlmoe, R"({"sliding_window": 8})", "sliding_window] the family olmoe has no such"}});
}

TEST_CASE("what a file with experts leaves out is as transformers' classes have it") {
  const std::string experts = R"("num_experts": "absent", "num_local_experts": "absent",
      "num_experts_per_tok": "absent", "norm_topk_prob": "absent", "hidden_act": "absent",
      "tie_word_embeddings": "absent", "attention_bias": "absent")";
  const std::string none = R"("rope_parameters": "absent", "rope_scaling": null)";
  const nn::CausalLMSpec qwen3 =
      spec_of(kWindow, "{" + experts + "," + none +
                           R"(, "moe_intermediate_size": "absent", "intermediate_size": "absent"})");
  CHECK(qwen3.layers[0].experts->count == 128);
  CHECK(qwen3.layers[0].experts->router.per_token == 8);
  CHECK(qwen3.layers[0].experts->intermediate_size == 768);
  CHECK_FALSE(qwen3.layers[0].experts->router.normalized);
  CHECK_FALSE((qwen3.layers[0].attention.qkv_bias || qwen3.layers[0].attention.output_bias));
  CHECK_FALSE(qwen3.shape.tied_head);
  CHECK(qwen3.rotary->theta == 1e4);
  const nn::CausalLMSpec mixtral = spec_of(kMixtral, "{" + experts + "," + none + "}");
  CHECK(mixtral.layers[0].experts->count == 8);
  CHECK(mixtral.layers[0].experts->router.per_token == 2);
  CHECK(mixtral.layers[0].experts->router.normalized);
  CHECK(mixtral.rotary->theta == 1e6);
  const nn::CausalLMSpec olmoe =
      spec_of(kOlmoe, "{" + experts + "," + none + R"(, "rms_norm_eps": "absent"})");
  CHECK(olmoe.layers[0].experts->count == 64);
  CHECK(olmoe.layers[0].experts->router.per_token == 8);
  CHECK_FALSE(olmoe.layers[0].experts->router.normalized);
  CHECK_FALSE(olmoe.layers[0].attention.qkv_bias);
  CHECK(olmoe.rotary->theta == 1e4);
  CHECK(olmoe.final_norm.eps == 1e-5);

  const std::string absent = R"({"pad_token_id": "absent"})";
  CHECK(spec_of(kQwen3, absent).padding_id == -1);
  CHECK(spec_of(kMixtral, absent).padding_id == -1);
  CHECK(spec_of(kOlmoe, absent).padding_id == 1);
  check_refused({{kMixtral, R"({"intermediate_size": "absent"})", "'intermediate_size' is missing"},
                 {kOlmoe, R"({"intermediate_size": "absent"})", "'intermediate_size' is missing"},
                 {kMixtral, R"({"rms_norm_eps": "absent"})", "'rms_norm_eps' is missing"},
                 {kQwen3, R"({"rms_norm_eps": "absent"})", "'rms_norm_eps' is missing"}});
}

TEST_CASE("Qwen3-MoE's MLP width says nothing where every layer has experts") {
  CHECK(nn::architecture(spec_of(kQwen3, R"({"intermediate_size": 100})")) ==
        nn::architecture(spec_of(kQwen3)));
}

TEST_CASE("what a family with experts has no meaning for is refused where it isn't off") {
  check_refused({{kOlmoe, R"({"clip_qkv": 8.0})", "clip_qkv] expected null"},
                 {kOlmoe, R"({"head_dim": 4})", "head_dim] expected hidden_size by num_attention_heads, 6"},
                 {kMixtral, R"({"attention_bias": true})", "attention_bias] the family mixtral has no such"},
                 {kMixtral, R"({"clip_qkv": 8.0})", "clip_qkv] the family mixtral has no such"}});
  for (const auto& variant : kAll) {
    check_refused(
        {{variant, R"({"num_key_value_heads": 3})", "num_key_value_heads 3"},
         {variant, R"({"hidden_act": "gelu"})", "hidden_act] expected 'silu'"},
         {variant, R"({"layer_types": ["full_attention", "full_attention"]})", "layer_types] the family"},
         {variant, R"({"mlp_bias": true})", "mlp_bias] the family"},
         {variant, R"({"quantization_config": {"bits": 4}})", "quantization_config] the family"}});
  }
}
