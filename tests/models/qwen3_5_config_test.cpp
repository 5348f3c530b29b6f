// What the families with gated delta nets read and refuse of a config.json.
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

const std::string kText = "qwen3_5_text/three-taps/config.json";
const std::string kNested = "qwen3_5/nested-tied/config.json";
const std::string kPublished = "qwen3_5/nested-tied/config-transformers-4.json";

nn::CausalLMSpec published(const std::string& size) {
  const auto path = test::source_dir() / "recipes/configs/qwen3_5" / (size + ".config.json");
  return models::model_spec(JsonView(Json::parse(read_file(path), "config.json"), "config.json"));
}

nn::GatedDeltaNetSpec delta_net_of(const std::string& variant, const std::string& changes = "{}") {
  return spec_of(variant, changes).layers.at(0).delta_net.value();
}

// A letter a layer: d for a gated delta net, a for attention.
std::string mixers(const nn::CausalLMSpec& spec) {
  std::string letters;
  for (const nn::DecoderLayerSpec& layer : spec.layers) letters += layer.delta_net ? 'd' : 'a';
  return letters;
}

// The same changes to a flat file, and to the text_config of a multimodal one.
struct Refusal {
  std::string key, value, problem;
};

void check_both_refuse(const std::vector<Refusal>& refusals) {
  for (const auto& [key, value, problem] : refusals) {
    check_refused({{kText, R"({")" + key + R"(": )" + value + "}", problem},
                   {kNested, R"({"text_config.)" + key + R"(": )" + value + "}", problem}});
  }
}

}  // namespace

TEST_CASE("a published Qwen 3.5 is its text model, three delta nets to each attention") {
  const nn::CausalLMSpec spec = published("4B");
  CHECK(spec.shape.hidden_size == 2560);
  CHECK(spec.shape.vocab_size == 248320);
  CHECK(spec.shape.tied_head);
  CHECK(mixers(spec) == "dddadddadddadddadddadddadddaddda");
  const nn::GatedDeltaNetSpec& net = spec.layers.at(4).delta_net.value();
  CHECK(net.prefix == "model.language_model.layers.4.linear_attn");
  CHECK(net.layout.key_heads == 16);
  CHECK(net.layout.value_heads == 32);
  CHECK(net.layout.key_dim == 128);
  CHECK(net.layout.value_dim == 128);
  CHECK(net.taps == 4);
  CHECK(net.norm_eps == 1e-6);
  const nn::AttentionSpec& attention = spec.layers.at(7).attention;
  CHECK(attention.prefix == "model.language_model.layers.7.self_attn");
  CHECK(attention.layout.heads == 16);
  CHECK(attention.layout.kv_heads == 4);
  CHECK(attention.layout.head_dim == 256);
  CHECK(attention.output_gate);
  CHECK_FALSE((attention.qkv_bias || attention.output_bias));
  CHECK(attention.qk_norm.value().q.size == 256);
  CHECK(attention.qk_norm.value().k.unit_offset);
  CHECK((spec.layers.at(4).attention_norm.value().unit_offset && spec.final_norm.unit_offset));
  CHECK(spec.rotary.value().rotary_dim == 64);
  CHECK(spec.rotary.value().theta == 1e7);
  CHECK_FALSE(published("9B").shape.tied_head);
}

TEST_CASE("a delta net's modules have the checkpoint's names and widths") {
  const nn::GatedDeltaNetSpec net = delta_net_of(kText);
  const std::string prefix = "model.layers.0.linear_attn.";
  const auto check = [&](const nn::Module& module, const std::string& name, std::int64_t width) {
    CHECK(module.name == prefix + name);
    CHECK(module.out_features == width);
  };
  check(net.input_modules().at(0), "in_proj_qkv", 2 * 2 * 6 + 4 * 10);
  check(net.input_modules().at(1), "in_proj_z", 4 * 10);
  check(net.gate_modules().at(0), "in_proj_b", 4);
  check(net.gate_modules().at(1), "in_proj_a", 4);
  check(net.output_module(), "out_proj", 24);
  CHECK(net.taps == 3);
}

TEST_CASE("the q module of attention holds a gate behind each head") {
  const nn::CausalLMSpec spec = spec_of(kText);
  const nn::AttentionSpec& attention = spec.layers.at(1).attention;
  const nn::Module q = attention.qkv_modules().at(0);
  CHECK(q.name == "model.layers.1.self_attn.q_proj");
  CHECK(q.out_features == 2 * 4 * 8);
  CHECK(attention.output_bias);
  CHECK(attention.qkv_bias);
}

TEST_CASE("which layers are delta nets is in layer_types, or follows from full_attention_interval") {
  CHECK(mixers(spec_of(kText)) == "dad");
  CHECK(mixers(spec_of(kNested)) == "ddda");
  const auto by_interval = [](const std::string& interval) {
    return mixers(spec_of(
        kNested,
        R"({"text_config.layer_types": "absent", "text_config.full_attention_interval": )" + interval + "}"));
  };
  CHECK(by_interval("2") == "dada");
  CHECK(by_interval("3") == "ddad");
  CHECK(by_interval("1") == "aaaa");
  CHECK(by_interval("null") == "ddda");
  CHECK(by_interval(R"("absent")") == "ddda");
  // layer_types count where both are there, as in transformers.
  CHECK(mixers(spec_of(kPublished, R"({"text_config.full_attention_interval": 2})")) == "ddda");
  CHECK(mixers(spec_of(kText, R"({"layer_types": ["linear_attention", "linear_attention",
                                                  "linear_attention"]})")) == "ddd");
}

TEST_CASE("what a Qwen 3.5 file leaves out is as transformers' class has it") {
  const nn::CausalLMSpec spec = spec_of(kText, R"({
      "num_key_value_heads": "absent", "head_dim": "absent", "hidden_act": "absent", "rms_norm_eps": "absent",
      "attention_bias": "absent", "tie_word_embeddings": "absent", "pad_token_id": "absent",
      "layer_types": "absent", "rope_parameters": "absent", "linear_conv_kernel_dim": "absent",
      "linear_num_key_heads": "absent", "linear_num_value_heads": "absent",
      "linear_key_head_dim": "absent", "linear_value_head_dim": "absent"})");
  CHECK(spec.shape.kv_heads == 4);
  CHECK(spec.shape.head_dim == 256);
  CHECK(spec.final_norm.eps == 1e-6);
  CHECK_FALSE(spec.shape.tied_head);
  CHECK(spec.padding_id == -1);
  CHECK(spec.rotary.value().theta == 1e4);
  CHECK(spec.rotary.value().rotary_dim == 64);
  CHECK(mixers(spec) == "ddd");  // the fourth would be attention
  const nn::GatedDeltaNetSpec net = spec.layers.at(0).delta_net.value();
  CHECK(net.layout.key_heads == 16);
  CHECK(net.layout.value_heads == 32);
  CHECK(net.layout.key_dim == 128);
  CHECK(net.layout.value_dim == 128);
  CHECK(net.taps == 4);
  CHECK_FALSE(spec_of(kText, R"({"attention_bias": "absent"})").layers.at(1).attention.qkv_bias);
}

TEST_CASE("a part of each head is rotated, a quarter where the file doesn't say which") {
  const auto rotated = [](const std::string& variant, const std::string& changes) {
    return spec_of(variant, changes).rotary.value().rotary_dim;
  };
  CHECK(rotated(kText, "{}") == 4);
  CHECK(rotated(kNested, "{}") == 6);
  CHECK(rotated(kText, R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})") == 2);
  CHECK(rotated(kText, R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                           "partial_rotary_factor": 1.0}})") == 8);
  // As published: in both places.
  CHECK(rotated(kText, R"({"partial_rotary_factor": 0.5})") == 4);
  check_refused({{kText, R"({"partial_rotary_factor": 0.25})",
                  "'partial_rotary_factor' and 'rope_parameters.partial_rotary_factor' differ"},
                 {kText, R"({"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.375}})",
                  "partial_rotary_factor] of a head_dim of 8 makes 3 rotated dimensions"}});
}

TEST_CASE("sections of multimodal rotary add up to half of the rotated dimensions") {
  const auto sections = [](const std::string& list) {
    return R"({"text_config.rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
               "partial_rotary_factor": 0.75, "mrope_section": )" +
           list + "}}";
  };
  CHECK(nn::architecture(spec_of(kNested, sections("[3, 0, 0]"))) == nn::architecture(spec_of(kNested)));
  check_refused({{kNested, sections("[2, 1, 1]"),
                  "mrope_section] expected sections that add up to half of the rotated dimensions, 3, got 4"},
                 {kNested, sections("[1, 1]"), "half of the rotated dimensions, 3, got 2"},
                 {kNested, sections("[5, -1, -1]"), "expected a number of pairs"}});
}

TEST_CASE("a multimodal file's text_config and a flat file with its settings are one architecture") {
  CHECK(nn::architecture(spec_of(kPublished)) == nn::architecture(spec_of(kNested)));
  const auto of = [](const std::string& variant, const std::string& prefix) {
    const std::string changes =
        R"({"PREFIXlayer_types": ["linear_attention", "full_attention", "linear_attention"],
            "PREFIXnum_hidden_layers": 3, "PREFIXlinear_conv_kernel_dim": 2, "PREFIXattention_bias": false,
            "PREFIXrope_parameters": {"rope_type": "default", "rope_theta": 20000.0,
                                      "partial_rotary_factor": 0.5}})";
    std::string all = changes;
    for (auto at = all.find("PREFIX"); at != std::string::npos; at = all.find("PREFIX"))
      all.replace(at, 6, prefix);
    nn::CausalLMSpec spec = spec_of(variant, all);
    spec.shape.tied_head = false;
    return nn::architecture(spec);
  };
  CHECK(of(kText, "") == of(kNested, "text_config."));
}

TEST_CASE("files and adapters may have the names of transformers' class with the tower and of that without") {
  const std::string with = "model.language_model.layers.0.mlp.up_proj",
                    without = "model.layers.0.mlp.up_proj";
  const auto check = [&](const std::string& variant, const std::string& own, const std::string& also) {
    CAPTURE(variant);
    const io::CheckpointNames names = spec_of(variant).checkpoint_names;
    for (const std::string& in_file : {with, without}) CHECK(names.model_name(in_file) == own);
    CHECK(names.in_files(own) == std::vector<std::string>{own, also});
    for (const char* other :
         {"model.visual.blocks.0.mlp.up_proj", "mtp.layers.0.mlp.up_proj", "lm_head.weight"})
      CHECK(names.model_name(other) == other);
  };
  check(kNested, with, without);
  check(kText, without, with);
}

TEST_CASE("the head of a multimodal Qwen 3.5 is tied where the file says so, which text_config may repeat") {
  const auto tied = [](const std::string& changes) { return spec_of(kNested, changes).shape.tied_head; };
  CHECK(tied("{}"));
  CHECK(tied(R"({"text_config.tie_word_embeddings": "absent"})"));
  CHECK_FALSE(tied(R"({"tie_word_embeddings": "absent", "text_config.tie_word_embeddings": "absent"})"));
  CHECK_FALSE(tied(R"({"tie_word_embeddings": false, "text_config.tie_word_embeddings": false})"));
  check_refused({
      {kNested, R"({"tie_word_embeddings": "absent"})",
       "text_config: tie_word_embeddings] expected that of the whole file, which is false where it is "
       "absent; write the same in both places"},
      {kNested, R"({"text_config.tie_word_embeddings": false})",
       "text_config: tie_word_embeddings] expected that of the whole file, which is true"},
  });
}

TEST_CASE("layers of another type, and more or fewer types than layers, are refused") {
  const std::string two = R"(["linear_attention", "full_attention"])";
  check_both_refuse(
      {{"layer_types", two, "layer_types] expected one for each of num_hidden_layers"},
       {"layer_types", R"("linear_attention")", "layer_types] expected an array"},
       {"full_attention_interval", "0", "full_attention_interval] expected an integer from 1"}});
  check_refused({{kText, R"({"layer_types": ["linear_attention", "sliding_attention", "linear_attention"]})",
                  "layer_types] expected linear_attention or full_attention, got 'sliding_attention'"},
                 {kText, R"({"layer_types": ["linear_attention", 1, "linear_attention"]})", "layer_types"}});
}

TEST_CASE("heads, widths and taps of a delta net that can't be are refused") {
  check_both_refuse(
      {{"linear_num_value_heads", "5", "] linear_num_value_heads 5 is no multiple of linear_num_key_heads 2"},
       {"linear_num_value_heads", "1", "] linear_num_value_heads 1 is no multiple of"},
       {"linear_num_key_heads", "0", "linear_num_key_heads] expected an integer from 1"},
       {"linear_key_head_dim", "-4", "linear_key_head_dim] expected an integer from 1"},
       {"linear_value_head_dim", "0.5", "linear_value_head_dim] expected"},
       {"linear_value_head_dim", "2000000",
        "] the heads of linear_num_key_heads and linear_num_value_heads have 8000024 numbers, over 4194304"},
       {"linear_conv_kernel_dim", "0", "linear_conv_kernel_dim] expected an integer from 1 to 8, got 0"},
       {"linear_conv_kernel_dim", "9", "linear_conv_kernel_dim] expected an integer from 1 to 8, got 9"}});
  CHECK(delta_net_of(kText, R"({"linear_conv_kernel_dim": 8})").taps == 8);
  CHECK(delta_net_of(kText, R"({"linear_conv_kernel_dim": 1})").taps == 1);
}

TEST_CASE("attention without its gate, and what no Qwen 3.5 has, are refused where they aren't off") {
  check_both_refuse(
      {{"attn_output_gate", "false", "attn_output_gate] false is not supported: transformers always has"},
       {"output_gate_type", R"("sigmoid")", "output_gate_type] expected 'swish'"},
       {"hidden_act", R"("gelu")", "hidden_act] expected 'silu'"},
       {"rms_norm_eps", "0", "rms_norm_eps] expected a number in (0, 1)"},
       {"num_experts", "8", "num_experts] the family qwen3_5"},
       {"sliding_window", "8", "sliding_window] the family qwen3_5"},
       {"mlp_bias", "true", "mlp_bias] the family qwen3_5"},
       {"use_qk_norm", "true", "use_qk_norm] the family qwen3_5"},
       {"quantization_config", R"({"bits": 4})", "quantization_config] the family qwen3_5"}});
  CHECK_NOTHROW(spec_of(kText, R"({"attn_output_gate": true, "output_gate_type": "swish"})"));
  CHECK_NOTHROW(spec_of(kText, R"({"attn_output_gate": null, "num_experts": 0, "sliding_window": null})"));
}

TEST_CASE("what is read for images and for tokens further ahead says nothing here") {
  const std::string more = R"({"text_config.mtp_num_hidden_layers": 3, "image_token_id": 4,
      "text_config.mtp_use_dedicated_embeddings": true, "text_config.mamba_ssm_dtype": "bfloat16",
      "vision_config": {"depth": 99}})";
  CHECK(nn::architecture(spec_of(kPublished, more)) == nn::architecture(spec_of(kPublished)));
}

TEST_CASE("a multimodal file without its text_config, or with that of another family, is refused") {
  check_refused(
      {{kNested, R"({"text_config": "absent"})", "'text_config' is missing"},
       {kNested, R"({"text_config.model_type": "qwen3_5_moe_text"})",
        "text_config: model_type] expected 'qwen3_5_text'"},
       {kNested, R"({"text_config.num_hidden_layers": "absent"})", "'num_hidden_layers' is missing"},
       {kNested, R"({"quantization_config": {"bits": 4}})", "quantization_config] the family qwen3_5"}});
}
