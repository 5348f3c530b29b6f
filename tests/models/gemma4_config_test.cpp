// What Gemma 4's families read and refuse of a config.json.
#include <algorithm>

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

const std::string kText = "gemma4_text/keys-as-values/config.json";
const std::string kPublishedText = "gemma4_text/keys-as-values/config-transformers-4.json";
const std::string kShared = "gemma4_text/shared-keys-wide/config.json";
const std::string kMixture = "gemma4_text/experts/config.json";
const std::string kNestedMixture = "gemma4/nested-experts/config.json";
const std::string kNested = "gemma4/nested/config.json";
const std::string kUnified = "gemma4_unified/nested/config.json";

nn::CausalLMSpec published(const std::string& size) {
  const auto path = test::source_dir() / "recipes/configs/gemma4" / (size + ".config.json");
  return models::model_spec(JsonView(Json::parse(read_file(path), "config.json"), "config.json"));
}

// A letter a layer: s for one with a window, f for one without.
std::string kinds(const nn::CausalLMSpec& spec) {
  std::string letters;
  for (const nn::DecoderLayerSpec& layer : spec.layers)
    letters += layer.attention.options.window > 0 ? 's' : 'f';
  return letters;
}

void check_heads(const nn::DecoderLayerSpec& layer, std::int64_t kv_heads, std::int64_t head_dim) {
  CHECK(layer.attention.layout.kv_heads == kv_heads);
  CHECK(layer.attention.layout.head_dim == head_dim);
  CHECK(layer.attention.qk_norm.value().q.size == head_dim);
}

}  // namespace

TEST_CASE("a published Gemma 4 31B has wider heads in every sixth layer, whose keys are its values") {
  const nn::CausalLMSpec spec = published("31B");
  CHECK(spec.shape.hidden_size == 5376);
  CHECK(spec.shape.tied_head);
  CHECK(spec.head.soft_cap == 30);
  CHECK(spec.embedding_scale_rounded);
  CHECK(kinds(spec).substr(0, 12) == "sssssfsssssf");
  const nn::DecoderLayerSpec &sliding = spec.layers.at(4), &full = spec.layers.at(5);
  check_heads(sliding, 16, 256);
  check_heads(full, 4, 512);
  CHECK(sliding.attention.options.window == 1024);
  for (const nn::DecoderLayerSpec* layer : {&sliding, &full}) {
    CHECK(layer->attention.options.scale == 1);
    CHECK(layer->attention.value_norm_eps == 1e-6);
    CHECK_FALSE(layer->attention.qk_norm.value().k.unit_offset);
    CHECK_FALSE(layer->post_mlp_norm.value().unit_offset);
    CHECK(layer->mlp.activation == ops::Activation::kGeluTanh);
  }
  CHECK(full.output_scale == "model.language_model.layers.5.layer_scalar");
  CHECK(sliding.attention.qkv_modules().size() == 3);
  const std::vector<nn::Module> modules = full.attention.qkv_modules();
  REQUIRE(modules.size() == 2);
  CHECK(modules[1].name == "model.language_model.layers.5.self_attn.k_proj");
  CHECK(modules[1].out_features == 4 * 512);
  CHECK(spec.rotary.value().rotary_dim == 512);
  CHECK(spec.rotary.value().rotated_pairs == 64);
  CHECK(spec.rotary.value().theta == 1e6);
  CHECK(spec.local_rotary.value().rotary_dim == 256);
  CHECK(spec.local_rotary.value().theta == 1e4);
}

TEST_CASE("Gemma 4 Unified has the same language model") {
  const nn::CausalLMSpec spec = published("12B");
  CHECK(spec.shape.layers == 48);
  check_heads(spec.layers.at(0), 8, 256);
  check_heads(spec.layers.at(47), 1, 512);
  const Json nested =
      *Json::parse(read_file(test::source_dir() / "tests/parity/goldens/families" / kUnified), kUnified)
           .find("text_config");
  const auto text = models::model_spec(JsonView(nested, "config.json"));
  CHECK(nn::architecture(text) == nn::architecture(spec_of(kUnified)));
  CHECK(text.layers[0].attention.prefix == "model.layers.0.self_attn");
}

TEST_CASE("heads of layers without a window are listed by layer, or have numbers of their own") {
  for (const std::string& file : {kText, kPublishedText}) {
    const nn::CausalLMSpec spec = spec_of(file);
    check_heads(spec.layers.at(0), 2, 8);
    check_heads(spec.layers.at(1), 1, 16);
    check_heads(spec.layers.at(2), 1, 16);
  }
  // Numbers that a file leaves out are those of the class, or of the other layers.
  check_heads(spec_of(kPublishedText, R"({"num_global_key_value_heads": null})").layers.at(1), 2, 16);
  check_heads(spec_of(kPublishedText, R"({"global_head_dim": "absent"})").layers.at(1), 1, 512);
  check_heads(
      spec_of(kText, R"({"per_layer_config": {"1": {"head_dim": 16}, "2": {"head_dim": 16}}})").layers.at(1),
      2, 16);
  check_heads(spec_of(kText, R"({"per_layer_config": {}})").layers.at(1), 2, 8);
  // The number of key heads has no effect in a model with values of their own.
  const nn::CausalLMSpec own = spec_of(kPublishedText, R"({"attention_k_eq_v": false})");
  check_heads(own.layers.at(1), 2, 16);
  CHECK(own.layers.at(1).attention.qkv_modules().size() == 3);
}

TEST_CASE("what a Gemma 4 file leaves out is as transformers' class has it") {
  const nn::CausalLMSpec spec = spec_of(kPublishedText, R"({
      "vocab_size": "absent", "hidden_size": "absent", "intermediate_size": "absent",
      "num_hidden_layers": "absent", "num_attention_heads": "absent", "num_key_value_heads": "absent",
      "head_dim": "absent", "max_position_embeddings": "absent", "rms_norm_eps": "absent",
      "tie_word_embeddings": "absent", "pad_token_id": "absent", "hidden_activation": "absent",
      "attention_bias": "absent", "attention_k_eq_v": "absent", "layer_types": "absent",
      "rope_parameters": "absent", "final_logit_softcapping": "absent", "enable_moe_block": "absent",
      "num_kv_shared_layers": "absent", "global_head_dim": "absent", "use_bidirectional_attention": "absent"})");
  CHECK(spec.shape.vocab_size == 262144);
  CHECK(spec.shape.hidden_size == 2304);
  CHECK(spec.shape.intermediate_size == 9216);
  CHECK(kinds(spec) == "sssssfsssssfsssssfsssssfsssssf");
  CHECK(spec.shape.max_position == 131072);
  CHECK(spec.shape.tied_head);
  CHECK(spec.padding_id == 0);
  CHECK(spec.final_norm.eps == 1e-6);
  CHECK(spec.head.soft_cap == 0);
  check_heads(spec.layers.at(0), 4, 256);
  check_heads(spec.layers.at(5), 4, 512);
  CHECK_FALSE(spec.layers.at(5).attention.keys_as_values);
  CHECK(spec.rotary.value().scaling == nn::RotarySpec::Scaling::kProportional);
  CHECK(spec.rotary.value().rotated_pairs == 64);
  CHECK(spec.rotary.value().theta == 1e6);
  CHECK(spec.local_rotary.value().theta == 1e4);
  CHECK(spec_of(kUnified, R"({"text_config.max_position_embeddings": "absent"})").shape.max_position ==
        262144);
}

TEST_CASE("layers follow layer_types, or all but every sixth and the last have a window") {
  CHECK(kinds(spec_of(kText)) == "sff");
  CHECK(kinds(spec_of(kPublishedText, R"({"layer_types": "absent"})")) == "ssf");
  CHECK(kinds(spec_of(kPublishedText, R"({"layer_types": null, "num_hidden_layers": 8})")) == "sssssfsf");
  CHECK_FALSE(
      spec_of(kPublishedText, R"({"layer_types": ["full_attention", "full_attention", "full_attention"]})")
          .local_rotary.has_value());
  CHECK(spec_of(kText).layers.at(0).rotary == nn::LayerRotary::kLocal);
  CHECK(spec_of(kText).layers.at(1).rotary == nn::LayerRotary::kGlobal);
}

TEST_CASE("a part of all pairs is rotated, by the frequencies of whole heads divided by a factor") {
  const auto global = [](const std::string& settings) {
    return spec_of(kText,
                   R"({"rope_parameters": {"sliding_attention": {"rope_theta": 100.0}, "full_attention": )" +
                       settings + "}}")
        .rotary.value();
  };
  CHECK(spec_of(kText).rotary->rotated_pairs == 2);
  CHECK(spec_of("gemma4_text/biases/config.json").rotary->factor == 4);
  CHECK(global(R"({"rope_type": "proportional", "rope_theta": 50.0})").rotated_pairs == 8);
  // As transformers rounds: down to whole pairs.
  CHECK(global(R"({"rope_type": "proportional", "rope_theta": 50.0, "partial_rotary_factor": 0.7})")
            .rotated_pairs == 5);
  CHECK(global(R"({"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0})").scaling ==
        nn::RotarySpec::Scaling::kLinear);
}

TEST_CASE("images alone would be attended to from both sides") {
  CHECK(nn::architecture(spec_of(kText, R"({"use_bidirectional_attention": "vision"})")) ==
        nn::architecture(spec_of(kText)));
  check_refused({{kText, R"({"use_bidirectional_attention": "all"})", "expected 'vision'"},
                 {kUnified, R"({"text_config.use_bidirectional_attention": "all"})", "expected 'vision'"}});
}

TEST_CASE("a published Gemma 4 E2B shares keys among its last layers, and has an input for each layer") {
  const nn::CausalLMSpec spec = published("E2B");
  CHECK(kinds(spec) == "ssssfssssfssssfssssfssssfssssfssssf");
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    CAPTURE(layer.index);
    const bool full = layer.attention.options.window == 0;
    if (layer.index < 15) {
      CHECK_FALSE(layer.attention.keys_of.has_value());
      CHECK(layer.attention.lends_keys == (layer.index == 13 || layer.index == 14));
      CHECK(layer.mlp.intermediate_size == 6144);
      CHECK(layer.attention.qkv_modules().size() == 3);
    } else {
      CHECK(layer.attention.keys_of == (full ? 14 : 13));
      CHECK_FALSE(layer.attention.lends_keys);
      CHECK(layer.mlp.intermediate_size == 2 * 6144);
      REQUIRE(layer.attention.qkv_modules().size() == 1);
    }
    CHECK(layer.layer_input.value().width == 256);
    CHECK(layer.layer_input.value().activation == ops::Activation::kGeluTanh);
  }
  const nn::LayerInputsSpec& inputs = spec.layer_inputs.value();
  CHECK(inputs.table == "model.language_model.embed_tokens_per_layer");
  CHECK(inputs.vocab_size == 262144);
  CHECK(inputs.projection_group().modules.at(0).name == "model.language_model.per_layer_model_projection");
  CHECK(inputs.projection_group().out_features() == 35 * 256);
  CHECK(inputs.norm.name == "model.language_model.per_layer_projection_norm");
  const nn::LayerInputSpec& input = spec.layers.at(3).layer_input.value();
  CHECK(input.gate_group().modules.at(0).name == "model.language_model.layers.3.per_layer_input_gate");
  CHECK(input.projection_group().modules.at(0).name == "model.language_model.layers.3.per_layer_projection");
  CHECK(input.norm.name == "model.language_model.layers.3.post_per_layer_input_norm");
}

TEST_CASE("what published files have of layers that read another's keys is another part") {
  const auto parts = spec_of(kShared).checkpoint_names.other_parts;
  const auto has = [&](const std::string& part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  CHECK(has("model.layers.4.self_attn.v_proj."));
  CHECK(has("model.language_model.layers.3.self_attn.k_norm."));
  CHECK_FALSE(has("model.layers.2.self_attn.k_proj."));
  CHECK_FALSE(has("model.layers.4.self_attn.q_proj."));
}

TEST_CASE(
    "settings of the last layers and of inputs stand for none where they are absent, or for the class's") {
  CHECK_FALSE(
      spec_of(kShared, R"({"num_kv_shared_layers": "absent"})").layers.at(4).attention.keys_of.has_value());
  CHECK_FALSE(spec_of(kShared, R"({"num_kv_shared_layers": 0})").layers.at(2).attention.lends_keys);
  CHECK(spec_of(kShared, R"({"use_double_wide_mlp": "absent"})").layers.at(4).mlp.intermediate_size == 36);
  // Where every layer has its own keys none is wider.
  CHECK(spec_of(kShared, R"({"num_kv_shared_layers": 0})").layers.at(4).mlp.intermediate_size == 36);
  CHECK(spec_of(kShared, R"({"hidden_size_per_layer_input": "absent"})").layer_inputs.value().width() == 256);
  CHECK_FALSE(spec_of(kShared, R"({"hidden_size_per_layer_input": 0})").layer_inputs.has_value());
  CHECK(spec_of(kShared, R"({"vocab_size_per_layer_input": "absent"})").layer_inputs.value().vocab_size ==
        262144);
  // The unified class has none.
  CHECK_FALSE(
      spec_of(kUnified, R"({"text_config.hidden_size_per_layer_input": 6})").layer_inputs.has_value());
}

TEST_CASE("a published Gemma 4 26B has experts beside each MLP") {
  const nn::CausalLMSpec spec = published("26B");
  CHECK(kinds(spec).substr(0, 12) == "sssssfsssssf");
  check_heads(spec.layers.at(0), 8, 256);
  check_heads(spec.layers.at(5), 2, 512);
  CHECK(spec.shape.intermediate_size == 2112 + 8 * 704);
  CHECK_FALSE(spec.layer_inputs.has_value());
  for (const nn::DecoderLayerSpec& layer : spec.layers) {
    CHECK_FALSE(layer.mlp_norm.has_value());
    CHECK(layer.post_mlp_norm.has_value());
    const nn::ExpertsSpec& experts = layer.experts.value();
    CHECK(experts.count == 128);
    CHECK(experts.router.per_token == 8);
    CHECK(experts.router.normalized);
    CHECK(experts.intermediate_size == 704);
    CHECK(experts.activation == ops::Activation::kGeluTanh);
    CHECK(experts.shared.value().intermediate_size == 2112);
    CHECK(experts.branch_norms.value().eps == 1e-6);
  }
}

TEST_CASE("Gemma 4's experts have the checkpoint's names, and files stack them") {
  for (const auto& [file, model] :
       {std::pair{kMixture, "model."}, {kNestedMixture, "model.language_model."}}) {
    const nn::CausalLMSpec spec = spec_of(file);
    const std::string layer = model + std::string("layers.1.");
    const nn::ExpertsSpec& experts = spec.layers.at(1).experts.value();
    CHECK(experts.router_module().name == layer + "router.proj");
    CHECK(experts.gate_up_modules(2).at(1).name == layer + "experts.2.up_proj");
    CHECK(experts.down_module(2).name == layer + "experts.2.down_proj");
    CHECK(experts.shared_mlp().down_module().name == layer + "mlp.down_proj");
    CHECK(experts.weight_scales == layer + "router.per_expert_scale");
    const nn::BranchNorms& norms = experts.branch_norms.value();
    CHECK(norms.router_scale == layer + "router.scale");
    CHECK(norms.mlp_input == layer + "pre_feedforward_layernorm");
    CHECK(norms.mlp_output == layer + "post_feedforward_layernorm_1");
    CHECK(norms.experts_input == layer + "pre_feedforward_layernorm_2");
    CHECK(norms.experts_output == layer + "post_feedforward_layernorm_2");
    CHECK(spec.layers.at(1).post_mlp_norm.value().name == layer + "post_feedforward_layernorm");
    REQUIRE(spec.checkpoint_names.expert_stacks.size() == 2);
    CHECK(spec.checkpoint_names.expert_stacks[0].tensor == "gate_up_proj");
    CHECK_FALSE(spec.checkpoint_names.expert_stacks[0].interleaved);
    CHECK_FALSE(spec.checkpoint_names.expert_stacks[0].transposed);
  }
  CHECK(spec_of(kText).checkpoint_names.expert_stacks.empty());
}

TEST_CASE("numbers of experts count where enable_moe_block asks for them") {
  CHECK_FALSE(spec_of(kMixture, R"({"enable_moe_block": "absent"})").layers.at(0).experts.has_value());
  CHECK(spec_of(kMixture, R"({"top_k_experts": 1})").layers.at(0).experts->router.per_token == 1);
  // The MLP that is as wide as the layer's own.
  CHECK(spec_of(kMixture, R"({"num_kv_shared_layers": 1, "use_double_wide_mlp": true})")
            .layers.at(2)
            .experts->shared->intermediate_size == 72);
  check_refused(
      {{kText, R"({"enable_moe_block": true})", "num_experts] is missing, but enable_moe_block"},
       {kMixture, R"({"top_k_experts": null})", "top_k_experts] is missing, but enable_moe_block"},
       {kMixture, R"({"moe_intermediate_size": "absent"})", "moe_intermediate_size] is missing"},
       {kMixture, R"({"top_k_experts": 6})", "top_k_experts] expected at most the number of experts, 5"},
       {kUnified, R"({"text_config.enable_moe_block": true})", "enable_moe_block] true is not supported"}});
}

TEST_CASE("layers that no earlier one has keys for are refused") {
  check_refused(
      {{kShared, R"({"num_kv_shared_layers": 3})",
        "num_kv_shared_layers] leaves layers with full_attention no earlier one"},
       {kShared, R"({"num_kv_shared_layers": 5})",
        "num_kv_shared_layers] expected an integer from 0 to 4, got 5"},
       {kShared, R"({"hidden_size_per_layer_input": null})",
        "hidden_size_per_layer_input] expected a number"},
       {kShared, R"({"vocab_size_per_layer_input": 47})", "vocab_size_per_layer_input] expected at least"}});
}

TEST_CASE("a Gemma 4 file that contradicts itself, or that transformers reads otherwise, is an error") {
  const std::string heads = R"({"head_dim": 16, "num_key_value_heads": 1})";
  const auto listed = [&](const std::string& more) { return R"({"per_layer_config": {)" + more + "}}"; };
  check_refused(
      {{kText, R"({"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
        "layer_types] expected the last layer to be full_attention"},
       {kText, R"({"sliding_window": "absent"})", "sliding_window] is missing"},
       {kText, listed(R"("1": )" + heads), "sizes of heads of layer 1 to be those of the last layer"},
       {kText, listed(R"("0": )" + heads + R"(, "1": )" + heads + R"(, "2": )" + heads),
        "sizes of heads of layer 0 to be those of the whole file"},
       {kText, listed(R"("3": )" + heads), "indices of layers from 0 to 2, got '3'"},
       {kText, listed(R"("full_attention": )" + heads), "got 'full_attention'"},
       {kText, listed(R"("1": {"intermediate_size": 8})"), "intermediate_size] expected head_dim and"},
       {kPublishedText, R"({"num_global_key_value_heads": 3})", "no multiple of num_key_value_heads 3"},
       {kPublishedText, R"({"global_head_dim": 15})", "head_dim 15 is odd"},
       {kText, R"({"rope_theta": 10000.0})", "rope_theta] has no meaning for this family"},
       {kText, R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})", "rope_scaling] has no meaning"},
       {kText, R"({"rope_parameters": {"full_attention": {"rope_theta": 10.0}}})", "sliding_attention"},
       {kText,
        R"({"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 10.0,
            "partial_rotary_factor": 0.1}, "sliding_attention": {"rope_theta": 10.0}}})",
        "partial_rotary_factor] expected a part of at most 1 that leaves a pair of a head_dim of 16, got "
        "0.1"},
       {kText,
        R"({"rope_parameters": {"full_attention": {"rope_theta": 10.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_theta": 10.0}}})",
        "partial_rotary_factor] only 1 is supported"},
       {kText, R"({"query_pre_attn_scalar": 8})",
        "query_pre_attn_scalar] the family gemma4_text has no such"},
       {kNested, R"({"tie_word_embeddings": false})", "tie_word_embeddings] contradicts the file's own"},
       {kNested, R"({"text_config.model_type": "gemma3_text"})", "model_type] expected 'gemma4_text'"},
       {kUnified, R"({"text_config.model_type": "gemma4_text"})",
        "model_type] expected 'gemma4_unified_text'"}});
}
