// What Mistral's younger families read and refuse of a config.json.
#include "models/golden_config.h"
#include "nn/architecture.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kByType = "ministral/by-type/config.json";
const std::string kMinistral3 = "ministral3/window/config.json";
const std::string kNested = "mistral3/nested-untied/config.json";
const std::string kTied = "mistral3/ministral-tied/config.json";
const std::string kPublished = "mistral3/nested-untied/config-transformers-4.json";

// Ministral 3's rotary settings, with these at their end.
std::string rope(const std::string& more, const std::string& key = "rope_parameters") {
  return "{\"" + key + R"(": {"rope_type": "yarn", "rope_theta": 10.0, "factor": 4.0,
         "original_max_position_embeddings": 16, "beta_fast": 1.0, "beta_slow": 0.25)" +
         more + "}}";
}

}  // namespace

TEST_CASE("what Mistral's families have no meaning for is refused") {
  for (const auto& variant : {kByType, kMinistral3}) {
    check_refused({{variant, R"({"num_key_value_heads": 3})", "num_key_value_heads 3"},
                   {variant, R"({"hidden_act": "gelu"})", "hidden_act] expected 'silu'"},
                   {variant, R"({"attention_bias": true})", "attention_bias] the family ministral"},
                   {variant, R"({"quantization_config": {"bits": 4}})", "quantization_config] the family"},
                   {variant, R"({"sliding_window": 0})", "sliding_window] expected an integer from 1"}});
  }
  check_refused({{kByType, R"({"sliding_window": "absent"})", "sliding_window] is missing; expected the"},
                 {kByType, R"({"sliding_window": null})", "sliding_window] is missing, but layers slide"},
                 {kByType, R"({"layer_types": ["full_attention"]})", "layer_types] expected one for each"},
                 {kMinistral3, R"({"head_dim": "absent"})", "'head_dim' is missing"},
                 {kMinistral3, R"({"layer_types": ["full_attention", "full_attention"]})",
                  "layer_types] the family ministral3 has no such setting"}});
}

TEST_CASE("Ministral without layer types has its window in every layer") {
  const nn::CausalLMSpec all = spec_of(kByType, R"({"layer_types": "absent"})");
  for (const auto& layer : all.layers) CHECK(layer.attention.options.window == 8);
  const nn::CausalLMSpec none = spec_of(kByType, R"({"layer_types": "absent", "sliding_window": null})");
  for (const auto& layer : none.layers) CHECK(layer.attention.options.window == 0);
}

TEST_CASE("what Ministral 3's files leave out is as transformers' class has it") {
  const nn::CausalLMSpec spec = spec_of(
      kMinistral3, R"({"sliding_window": "absent", "rms_norm_eps": "absent", "pad_token_id": "absent"})");
  CHECK(spec.layers[0].attention.options.window == 0);
  CHECK(spec.final_norm.eps == 1e-5);
  CHECK(spec.padding_id == 11);
  CHECK_FALSE(spec.shape.tied_head);
}

TEST_CASE("Ministral 3's queries are scaled by position as its rotary settings say, 0 for not at all") {
  const nn::RotarySpec given =
      *spec_of(kMinistral3, rope(R"(, "llama_4_scaling_beta": 0.1, "max_position_embeddings": 512)")).rotary;
  CHECK(given.query_beta == 0.1);
  CHECK(given.original_max_position == 16);
  // Devstral 2 writes zeros: no scaling, and mscale without effect.
  const nn::RotarySpec zeros =
      *spec_of(kMinistral3, rope(R"(, "llama_4_scaling_beta": 0.0, "mscale": 1.0, "mscale_all_dim": 0.0)"))
           .rotary;
  CHECK(zeros.query_beta == 0);
  CHECK(zeros.attention_factor == Approx(1.1386).epsilon(1e-4));  // 0.1 ln(4) + 1
  CHECK(spec_of(kMinistral3, rope(R"(, "llama_4_scaling_beta": 0, "mscale": 2.0, "mscale_all_dim": 2.0)"))
            .rotary->attention_factor == 1);
  check_refused(
      {{kMinistral3, rope(""), "'llama_4_scaling_beta' is missing; expected a number, 0 for none"},
       {kMinistral3, rope(R"(, "llama_4_scaling_beta": -0.1)"), "llama_4_scaling_beta] expected a number"},
       {kMinistral3, R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10.0}})",
        "rope_parameters] expected rope_type yarn with llama_4_scaling_beta"},
       {"mistral/yarn/config.json", rope(R"(, "llama_4_scaling_beta": 0.1)"),
        "llama_4_scaling_beta] is no setting of this rotary type"}});
}

TEST_CASE("a multimodal Mistral's head is tied as its text_config says, and absent means it is not") {
  const std::string text_true = R"("text_config.tie_word_embeddings": true)";
  const std::string text_none = R"("text_config.tie_word_embeddings": "absent")";
  const std::string file_none = R"("tie_word_embeddings": "absent")";
  const auto tied = [](const std::string& a, const std::string& b) {
    return spec_of(kNested, "{" + a + ", " + b + "}").shape.tied_head;
  };
  CHECK(tied(text_true, file_none));  // Ministral 3 3B, as published
  CHECK(tied(text_true, R"("tie_word_embeddings": true)"));
  CHECK_FALSE(tied(text_none, file_none));  // Mistral Small 3.1, Ministral 3 8B and 14B, as published
  CHECK_FALSE(tied(text_none, R"("tie_word_embeddings": false)"));
  CHECK_FALSE(tied(text_none, R"("tie_word_embeddings": true)"));  // the same, saved by transformers 5
  check_refused({{kTied, R"({"tie_word_embeddings": false})",
                  "text_config: tie_word_embeddings] true contradicts the file's own"}});
}

TEST_CASE("a multimodal Mistral is the text model of its text_config under the multimodal class's names") {
  const nn::CausalLMSpec spec = spec_of(kPublished);
  CHECK(spec.embedding_name == "model.language_model.embed_tokens");
  CHECK(spec.layers[1].attention.prefix == "model.language_model.layers.1.self_attn");
  CHECK(spec.final_norm.name == "model.language_model.norm");
  CHECK(spec.head.name == "lm_head");
  CHECK_FALSE(spec.checkpoint_names.other_parts.empty());
  CHECK(nn::architecture(spec_of(kNested, R"({"text_config.model_type": "absent"})")) ==
        nn::architecture(spec));
  check_refused(
      {{kNested, R"({"text_config": "absent"})", "'text_config' is missing"},
       {kNested, R"({"text_config.model_type": "llama"})",
        "text_config: model_type] expected 'mistral' or 'ministral3'"},
       {kNested, R"({"text_config.hidden_size": "absent"})", "text_config] key 'hidden_size' is missing"},
       {kNested, R"({"text_config.sliding_window": "absent"})", "text_config: sliding_window] is missing"},
       {kNested, R"({"text_config.quantization_config": {"bits": 4}})", "text_config: quantization_config]"},
       {kNested, R"({"sliding_window": 8})", "sliding_window] the family mistral3 has no such setting"}});
}
