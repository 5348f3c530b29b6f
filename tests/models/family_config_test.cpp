// What each family refuses of a config.json, by the golden checkpoints' files with something changed. An
// error names the file and the key.
#include "base/file.h"
#include "models/registry.h"
#include "nn/architecture.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using Catch::Contains;
using test::error_text;

namespace {

// The golden config.json `variant`, with members replaced, or taken away by the string "absent".
// "text_config.KEY" is a member of the nested object.
void change(Json& json, const std::string& key, const Json& value) {
  constexpr std::string_view kNested = "text_config.";
  if (key.starts_with(kNested)) {
    Json nested = *json.find("text_config");
    change(nested, key.substr(kNested.size()), value);
    json.set("text_config", nested);
  } else if (value.is_string() && value.string() == "absent") {
    std::erase_if(json.object(), [&key](const Json::Member& m) { return m.first == key; });
  } else {
    json.set(key, value);
  }
}

Json changed(const std::string& variant, const std::string& changes) {
  const auto path = test::source_dir() / "tests/parity/goldens/families" / variant;
  Json json = Json::parse(read_file(path), variant);
  const Json changes_of_keys = Json::parse(changes, "changes");
  for (const auto& [key, value] : changes_of_keys.object()) change(json, key, value);
  return json;
}

nn::CausalLMSpec spec_of(const std::string& variant, const std::string& changes = "{}") {
  const Json json = changed(variant, changes);
  return models::model_spec(JsonView(json, "config.json"));
}

struct Refused {
  std::string variant;  // with the file's name
  std::string changes;
  std::string key;  // in the error, with more of its text
};

void check_refused(const std::vector<Refused>& cases) {
  for (const Refused& refused : cases) {
    CAPTURE(refused.variant, refused.changes);
    const std::string error = error_text([&] { spec_of(refused.variant, refused.changes); });
    CHECK_THAT(error, Contains("config.json") && Contains(refused.key));
  }
}

const std::string kMistral = "mistral/window-head-dim/config.json";
const std::string kQwen2 = "qwen2/window-above/config.json";
const std::string kQwen3 = "qwen3/plain/config.json";
const std::string kLongrope = "phi3/partial-longrope/config.json";
const std::string kOldLongrope = "phi3/partial-longrope/config-transformers-4.json";
const std::string kNeox = "gpt_neox/parallel/config.json";
const std::string kOldNeox = "gpt_neox/parallel/config-transformers-4.json";
const std::string kFalcon = "falcon/40b/config.json";
const std::string kGemma2 = "gemma2/plain/config.json";
const std::string kGemma3 = "gemma3_text/linear-rope/config.json";
const std::string kNested = "gemma3/nested/config.json";
const std::string kOldNested = "gemma3/nested/config-transformers-4.json";
const std::string kSmollm3 = "smollm3/plain/config.json";
const std::string kGranite = "granite/plain/config.json";
const std::string kGemma = "gemma/plain/config.json";
const std::string kOlmo2 = "olmo2/plain/config.json";
const std::vector<std::string> kOfEachFamily = {kMistral, kQwen2,   kQwen3,  kLongrope, kNeox,
                                                kFalcon,  kGemma,   kGemma2, kGemma3,   kNested,
                                                kOlmo2,   kSmollm3, kGranite};

}  // namespace

TEST_CASE("contradicting heads are refused by every family") {
  for (const auto& [variant, key] : {std::pair{kMistral, "num_key_value_heads"},
                                     {kQwen2, "num_key_value_heads"},
                                     {kQwen3, "num_key_value_heads"},
                                     {kLongrope, "num_key_value_heads"},
                                     {kNeox, "num_key_value_heads"},
                                     {kFalcon, "num_kv_heads"},
                                     {kGemma, "num_key_value_heads"},
                                     {kGemma2, "num_key_value_heads"},
                                     {kGemma3, "num_key_value_heads"},
                                     {kOlmo2, "num_key_value_heads"},
                                     {kSmollm3, "num_key_value_heads"},
                                     {kGranite, "num_key_value_heads"}}) {
    check_refused({{variant, "{\"" + std::string(key) + "\": 3}", "num_"}});
  }
  check_refused(
      {{kFalcon, R"({"num_attention_heads": 5})", "num_attention_heads 5"},
       {kNeox, R"({"num_attention_heads": 5})", "num_attention_heads 5"},
       {kNeox, R"({"head_dim": 4})", "head_dim] expected hidden_size by num_attention_heads, 8"},
       {kQwen3, R"({"head_dim": "absent"})", "'head_dim' is missing"},
       {"falcon/per-head/config.json", R"({"num_kv_heads": 2})", "num_kv_heads] expected as many"}});
}

TEST_CASE("unknown activations are refused by every family") {
  for (const auto& variant :
       {kMistral, kQwen2, kQwen3, kLongrope, kNeox, kSmollm3, kGranite, kGemma, kOlmo2}) {
    check_refused({{variant, R"({"hidden_act": "relu"})", "hidden_act] expected"}});
  }
  check_refused({{kFalcon, R"({"activation": "relu"})", "activation] expected"},
                 {kGemma2, R"({"hidden_activation": "gelu"})", "hidden_activation] expected"},
                 {kGemma3, R"({"hidden_activation": "gelu"})", "hidden_activation] expected"}});
}

TEST_CASE("windows without a size, or sizes without windows, are refused") {
  check_refused({
      {kMistral, R"({"sliding_window": "absent"})", "sliding_window] is missing"},
      {kMistral, R"({"sliding_window": 0})", "sliding_window] expected an integer from 1"},
      {kQwen2, R"({"sliding_window": null})", "sliding_window] is missing, but layers slide"},
      {kQwen2, R"({"use_sliding_window": false})", "layer_types] has sliding_attention"},
      {kQwen2, R"({"layer_types": ["full_attention"]})", "layer_types] expected one for each"},
      {kQwen2, R"({"layer_types": ["full_attention", "chunked"]})",
       "layer_types] expected sliding_attention"},
      {kQwen2, R"({"layer_types": "absent", "max_window_layers": "absent"})", "max_window_layers"},
      {kQwen2, R"({"layer_types": "absent", "max_window_layers": -1})", "max_window_layers] expected"},
      {kGemma2, R"({"sliding_window": null})", "sliding_window] is missing"},
      {kGemma3, R"({"sliding_window": "absent"})", "sliding_window] is missing"},
      {kSmollm3, R"({"use_sliding_window": true})", "use_sliding_window] true is not supported"},
      {kSmollm3, R"({"no_rope_layers": [1, 0]})", "no_rope_layers] expected one for each"},
      {kSmollm3, R"({"no_rope_layers": [1, 2, 1]})", "no_rope_layers] expected 1 for rotary"},
  });
}

TEST_CASE("a window that isn't used changes nothing") {
  const std::string variant = "qwen2/tied-window-unused/config.json";
  CHECK(nn::architecture(spec_of(variant)) ==
        nn::architecture(spec_of(variant, R"({"sliding_window": 5, "max_window_layers": 0})")));
  CHECK(spec_of(kQwen2, R"({"layer_types": "absent"})").layers[1].attention.options.window == 8);
  CHECK(spec_of(kQwen2, R"({"layer_types": "absent"})").layers[0].attention.options.window == 0);
}

TEST_CASE("longrope with factors that don't fit is refused") {
  const auto rope = [](const std::string& more) {
    return R"({"rope_scaling": {"type": "longrope", )" + more + "}}";
  };
  const std::string short_factor = R"("short_factor": [1.0, 1.0, 1.0])";
  const std::string long_factor = R"("long_factor": [1.0, 2.0, 3.0])";
  check_refused({
      {kOldLongrope, rope(short_factor), "'long_factor' is missing"},
      {kOldLongrope, rope(long_factor), "'short_factor' is missing"},
      {kOldLongrope, rope(short_factor + R"(, "long_factor": [1.0, 2.0])"),
       "long_factor] expected 3 numbers"},
      {kOldLongrope, rope(long_factor + R"(, "short_factor": [1.0, 0.0, 2.0])"), "short_factor"},
      {kOldLongrope, rope(short_factor + ", " + long_factor + R"(, "short_mscale": 1.1)"), "short_mscale"},
      {kOldLongrope, R"({"original_max_position_embeddings": "absent"})", "original_max_position_embeddings"},
      {kLongrope, R"({"original_max_position_embeddings": "absent"})",
       "rope_parameters.original_max_position_embeddings] expected this number at the top level"},
      {kLongrope, R"({"original_max_position_embeddings": 25})", "differs from that of the whole file"},
      {kOldLongrope, R"({"partial_rotary_factor": 0.4})", "partial_rotary_factor"},
      {kOldLongrope, R"({"partial_rotary_factor": 1.5})", "partial_rotary_factor"},
      {kOldLongrope, R"({"rope_scaling": {"type": "yarn"}})", "'yarn' is not supported"},
      {"qwen2/window-above/config-transformers-4.json", rope(short_factor + ", " + long_factor),
       "'longrope' is not supported"},
  });
  // Phi-3's first files called it "su".
  const std::string factors = short_factor + ", " + long_factor;
  CHECK(nn::architecture(spec_of(kOldLongrope, R"({"rope_scaling": {"type": "su", )" + factors + "}}")) ==
        nn::architecture(spec_of(kOldLongrope, rope(factors))));
}

TEST_CASE("an attention factor follows from how much longer the context is") {
  const auto factor = [](const std::string& changes) {
    return spec_of(kOldLongrope, changes).rotary->attention_factor;
  };
  // sqrt(1 + ln(512 / 24) / ln(24))
  CHECK(factor("{}") == Approx(1.4010).epsilon(1e-4));
  CHECK(factor(R"({"max_position_embeddings": 24})") == 1);
}

TEST_CASE("rotary settings of another family are refused") {
  check_refused({
      {"mistral/nemo/config-transformers-4.json", R"({"partial_rotary_factor": 0.5})",
       "partial_rotary_factor"},
      {"mistral/nemo/config-transformers-4.json",
       R"({"rope_scaling": {"type": "linear", "factor": 2, "beta": 1}})",
       "rope_scaling: beta] is no setting"},
      {kOldNeox, R"({"rotary_pct": 0.1})", "rotary_pct"},
      {kOldNeox, R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1.0}})", "'rotary_emb_base'"},
      {kGemma3, R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})", "full_attention"},
  });
}

TEST_CASE("numbers within rope_scaling that another place may hold count") {
  const std::string scaling = R"("rope_scaling": {"type": "linear", "factor": 2, "rope_theta": 300.0})";
  CHECK(spec_of(kOldNeox, R"({"rotary_emb_base": "absent", )" + scaling + "}").rotary->theta == 300);
  check_refused({{kOldNeox, "{" + scaling + "}", "'rotary_emb_base' and 'rope_scaling.rope_theta' differ"}});
  const nn::CausalLMSpec gemma3 = spec_of("gemma3_text/linear-rope/config-transformers-4.json",
                                          R"({"rope_theta": "absent", )" + scaling + "}");
  CHECK(gemma3.rotary->theta == 300);
  CHECK(gemma3.local_rotary->theta == 10000);  // rope_scaling is the other table's
  const std::string part = R"("rope_scaling": {"type": "default", "partial_rotary_factor": 0.5})";
  CHECK(spec_of("phi3/window/config-transformers-4.json", R"({"partial_rotary_factor": "absent",
                "hidden_size": 32, )" + part + "}")
            .rotary->rotary_dim == 4);
  check_refused({{"phi3/window/config-transformers-4.json", R"({"partial_rotary_factor": 1.0, )" + part + "}",
                  "'partial_rotary_factor' and 'rope_scaling.partial_rotary_factor' differ"}});
}

TEST_CASE("where a file has no rotary base, it is the family's own, as in transformers") {
  const std::string none = R"({"rope_parameters": "absent", "rope_scaling": null})";
  CHECK(spec_of(kSmollm3, none).rotary->theta == 2e6);
  for (const auto& variant : {kMistral, kQwen2, kQwen3, kGranite, kGemma, kGemma2, kOlmo2})
    CHECK(spec_of(variant, none).rotary->theta == 1e4);
}

TEST_CASE("the embedding leaves out the gradient of pad_token_id, as transformers' classes do") {
  const std::string absent = R"({"pad_token_id": "absent"})";
  for (const auto& variant :
       {kMistral, kQwen2, kQwen3, kGranite, kSmollm3, kLongrope, kGemma, kGemma2, kGemma3, kOlmo2}) {
    CAPTURE(variant);
    CHECK(spec_of(variant, R"({"pad_token_id": 3})").padding_id == 3);
    CHECK(spec_of(variant, R"({"pad_token_id": null})").padding_id == -1);
    CHECK(spec_of(variant, R"({"pad_token_id": -1})").padding_id == 47);  // the last of 48 rows
    CHECK(spec_of(variant, R"({"pad_token_id": 48})").padding_id == -1);
    CHECK(spec_of(variant, R"({"pad_token_id": -49})").padding_id == -1);
  }
  CHECK(spec_of(kNested, R"({"text_config.pad_token_id": 3, "pad_token_id": 5})").padding_id == 3);
  // Absent: what the configuration class has.
  for (const auto& variant : {kMistral, kQwen2, kQwen3, kGranite})
    CHECK(spec_of(variant, absent).padding_id == -1);
  for (const auto& variant : {kGemma, kGemma2, kGemma3}) CHECK(spec_of(variant, absent).padding_id == 0);
  CHECK(spec_of(kOlmo2, absent).padding_id == 1);
  CHECK(spec_of(kLongrope, absent).padding_id == -1);  // without a row of that id
  CHECK(spec_of(kLongrope, R"({"pad_token_id": "absent", "vocab_size": 32064})").padding_id == 32000);
  CHECK(spec_of(kSmollm3, R"({"pad_token_id": "absent", "vocab_size": 128256})").padding_id == 128004);
  // Their embeddings have no padding_idx.
  for (const auto& variant : {kNeox, kFalcon})
    CHECK(spec_of(variant, R"({"pad_token_id": 3})").padding_id == -1);
}

TEST_CASE("what a family has no meaning for is refused where it isn't off") {
  check_refused({
      {kFalcon, R"({"alibi": true})", "alibi] true is not supported"},
      {kFalcon, R"({"parallel_attn": false})", "parallel_attn"},
      {"falcon/7b/config.json", R"({"num_ln_in_parallel_attn": 2})", "num_ln_in_parallel_attn"},
      {"falcon/7b/config.json", R"({"apply_residual_connection_post_layernorm": true})",
       "apply_residual_connection_post_layernorm"},
      {kMistral, R"({"layer_types": ["full_attention", "full_attention"]})", "layer_types"},
      {kMistral, R"({"attention_bias": true})", "attention_bias] the family mistral has no such setting"},
      {kQwen2, R"({"attention_bias": true})", "attention_bias"},
      {kGranite, R"({"num_local_experts": 8})", "num_local_experts"},
      {kGranite, R"({"logits_scaling": 0})", "logits_scaling] expected a number above 0"},
      {kGranite, R"({"attention_multiplier": "absent"})", "'attention_multiplier' is missing"},
      {kGemma2, R"({"attn_logit_softcapping": "absent"})", "attn_logit_softcapping] is missing"},
      {kGemma2, R"({"final_logit_softcapping": -1})", "final_logit_softcapping] expected"},
      {kGemma2, R"({"query_pre_attn_scalar": "absent"})", "'query_pre_attn_scalar' is missing"},
      {kGemma3, R"({"use_bidirectional_attention": true})", "use_bidirectional_attention"},
      {kGemma3, R"({"attn_logit_softcapping": 50.0})",
       "attn_logit_softcapping] the family gemma3_text has no such setting"},
      {kOlmo2, R"({"clip_qkv": 8.0})", "clip_qkv"},
      {kQwen2, R"({"is_causal": false})", "is_causal"},
      {kOldNeox, R"({"partial_rotary_factor": 0.25})", "'rotary_pct' and 'partial_rotary_factor' differ"},
      {kOldNeox, R"({"rope_theta": 500000})", "'rotary_emb_base' and 'rope_theta' differ"},
  });
  for (const auto& variant : kOfEachFamily) {
    check_refused({{variant, R"({"quantization_config": {"bits": 4}})", "quantization_config] the family"}});
    CHECK_NOTHROW(
        spec_of(variant, R"({"quantization_config": null, "alibi": false, "num_local_experts": 0})"));
  }
}

TEST_CASE("contradictions of a nested config.json are refused by the nested key's name") {
  check_refused({
      {kNested, R"({"text_config": "absent"})", "'text_config' is missing"},
      {kNested, R"({"text_config": null})", "text_config] expected an object"},
      {kNested, R"({"text_config": 7})", "text_config] expected an object"},
      {kNested, R"({"text_config.model_type": "gemma2"})", "text_config: model_type] expected 'gemma3_text'"},
      {kNested, R"({"text_config.num_hidden_layers": "absent"})",
       "text_config] key 'num_hidden_layers' is missing"},
      {kNested, R"({"text_config.hidden_size": "absent"})", "text_config] key 'hidden_size' is missing"},
      {kNested, R"({"text_config.num_key_value_heads": 3})", "text_config] num_attention_heads 4"},
      {kNested, R"({"text_config.sliding_window": "absent"})", "text_config: sliding_window] is missing"},
      {kNested, R"({"text_config.layer_types": ["full_attention"]})",
       "text_config: layer_types] expected one for each"},
      {kNested, R"({"text_config.use_bidirectional_attention": true})",
       "text_config: use_bidirectional_attention"},
      {kNested, R"({"text_config.quantization_config": {"bits": 4}})", "text_config: quantization_config]"},
      {kNested, R"({"tie_word_embeddings": false})", "text_config: tie_word_embeddings] contradicts"},
      {kOldNested, R"({"text_config.tie_word_embeddings": false, "tie_word_embeddings": "absent"})",
       "which is true where it is absent"},
      {kNested, R"({"sliding_window": 8})", "sliding_window] the family gemma3 has no such setting"},
      {kNested, R"({"num_experts": 8})", "num_experts] the family gemma3 has no such setting"},
      {kGemma3, R"({"text_config": {}})", "text_config] the family gemma3_text has no such setting"},
  });
}

TEST_CASE("a nested Gemma 3 is the text model of its text_config under the multimodal class's names") {
  const nn::CausalLMSpec nested = spec_of(kNested), text = spec_of(kGemma3);
  CHECK(nn::architecture(nested) == nn::architecture(text));
  CHECK(nested.embedding_name == "model.language_model.embed_tokens");
  CHECK(nested.layers[1].attention.prefix == "model.language_model.layers.1.self_attn");
  CHECK(nested.head.name == "lm_head");
  CHECK(text.checkpoint_names.other_parts.empty());
}

TEST_CASE("Gemma 3's context is what its file says, with the scaling of its angles in it already") {
  CHECK(spec_of(kNested).shape.max_position == 512);
  CHECK(spec_of(kGemma3).shape.max_position == 512);
}

TEST_CASE("a missing number of a family is an error that names its key") {
  for (const auto& [variant, key] : {std::pair{kNeox, "layer_norm_eps"},
                                     {kMistral, "rms_norm_eps"},
                                     {kGemma2, "head_dim"},
                                     {kFalcon, "num_hidden_layers"}}) {
    check_refused({{variant, "{\"" + std::string(key) + "\": \"absent\"}", key}});
  }
}

TEST_CASE("Gemma's embedding scale is the root of the hidden size, rounded to the compute dtype") {
  for (const auto& variant : {kGemma, kGemma2, kGemma3}) {
    const nn::CausalLMSpec spec = spec_of(variant);
    CHECK(spec.embedding_scale == Approx(4.898979));
    CHECK(spec.embedding_scale_rounded);
  }
  CHECK_FALSE(spec_of(kGranite).embedding_scale_rounded);
}
