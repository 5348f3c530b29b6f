// What the families of multimodal Qwen checkpoints read and refuse of a config.json.
#include "models/golden_config.h"
#include "nn/architecture.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

const std::string kQwen25 = "qwen2_5_vl/window-above/config.json";
const std::string kFlat = "qwen2_5_vl/window-above/config-transformers-4.json";
const std::string kFlatTied = "qwen2_vl/tied/config-transformers-4.json";
const std::string kQwen3 = "qwen3_vl/tied/config.json";
const std::string kOldQwen3 = "qwen3_vl/tied/config-transformers-4.json";

nn::Architecture architecture(const std::string& variant, const std::string& changes) {
  return nn::architecture(spec_of(variant, changes));
}

std::string scaling(const std::string& members) { return R"({"rope_scaling": {)" + members + "}}"; }

}  // namespace

TEST_CASE("a multimodal Qwen is the text model of its file under the multimodal class's names") {
  for (const auto& variant : {kQwen25, kFlat, kFlatTied, kQwen3}) {
    CAPTURE(variant);
    const nn::CausalLMSpec spec = spec_of(variant);
    CHECK(spec.embedding_name == "model.language_model.embed_tokens");
    CHECK(spec.layers[1].attention.prefix == "model.language_model.layers.1.self_attn");
    CHECK(spec.final_norm.name == "model.language_model.norm");
    CHECK(spec.head.name == "lm_head");
  }
  CHECK(architecture(kQwen25, "{}") ==
        architecture("qwen2/window-above/config.json", R"({"rms_norm_eps": 1e-05})"));
}

TEST_CASE(
    "the names of files and of older adapters lead to a multimodal Qwen's, and the tower keeps its own") {
  const io::CheckpointNames names = spec_of(kFlat).checkpoint_names;
  for (const char* in_file :
       {"model.layers.0.mlp.up_proj.weight", "model.language_model.layers.0.mlp.up_proj.weight"})
    CHECK(names.model_name(in_file) == "model.language_model.layers.0.mlp.up_proj.weight");
  for (const char* own :
       {"visual.blocks.0.mlp.up_proj.weight", "model.visual.blocks.0.mlp.up_proj.weight", "lm_head.weight"})
    CHECK(names.model_name(own) == own);
}

TEST_CASE("sections of multimodal rotary change nothing for text, in every rotary type") {
  const auto flat = [](const std::string& members) { return architecture(kFlat, scaling(members)); };
  const nn::Architecture plain = flat(R"("type": "default")");
  CHECK(flat(R"("type": "mrope", "mrope_section": [1, 2, 0])") == plain);
  CHECK(flat(R"("rope_type": "default", "type": "default", "mrope_section": [1, 1, 1])") == plain);
  CHECK(flat(R"("rope_type": "mrope", "mrope_section": [1, 1, 1], "mrope_interleaved": false)") == plain);
  const std::string yarn = R"("type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64)";
  CHECK(flat(yarn + R"(, "mrope_section": [1, 1, 1])") == flat(yarn));
  CHECK_FALSE(flat(yarn) == plain);
}

TEST_CASE("sections that don't fit, and those of other families, are refused") {
  check_refused({
      {kFlat, scaling(R"("type": "mrope", "mrope_section": [16, 24, 24])"),
       "mrope_section] expected sections that add up to half of the rotated dimensions, 3, got 64"},
      {kFlat, scaling(R"("type": "mrope", "mrope_section": [1, 1])"),
       "half of the rotated dimensions, 3, got 2"},
      {kFlat, scaling(R"("type": "mrope", "mrope_section": [4, -1, 0])"), "expected a number of pairs"},
      {kFlat, scaling(R"("type": "mrope", "mrope_section": 3)"), "mrope_section] expected an array"},
      {kFlat, scaling(R"("type": "mrope", "mrope_interleaved": 1)"),
       "mrope_interleaved] expected true or false"},
      {kFlat, scaling(R"("type": "mrope", "factor": 2.0)"), "factor] is no setting"},
      {"qwen2/window-above/config-transformers-4.json",
       scaling(R"("type": "mrope", "mrope_section": [1, 1, 1])"), "rotary type 'mrope' is not supported"},
      {"qwen2/window-above/config-transformers-4.json",
       scaling(R"("type": "default", "mrope_section": [1, 1, 1])"), "mrope_section] is no setting"},
  });
}

TEST_CASE("where a multimodal Qwen's file has no rotary base, it is the family's own, as in transformers") {
  CHECK(spec_of(kFlat, R"({"rope_theta": "absent"})").rotary->theta == 1e6);
  CHECK(spec_of(kOldQwen3, R"({"text_config.rope_theta": "absent"})").rotary->theta == 5e5);
  CHECK(spec_of(kQwen3, R"({"text_config.head_dim": "absent", "text_config.rope_parameters": "absent"})")
            .shape.head_dim == 128);
}

TEST_CASE("a flat file's numbers beside text_config, as transformers 4 wrote them, have to be the same") {
  const std::string both =
      R"("hidden_size": 24, "vocab_size": 48, "num_hidden_layers": 2, "rms_norm_eps": 1e-05,
      "rope_theta": 10000, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]}, "max_window_layers": 1)";
  CHECK(architecture(kQwen25, "{" + both + R"(, "sliding_window": 32768, "use_sliding_window": false})") ==
        architecture(kQwen25, "{}"));
  check_refused({
      {kQwen25, R"({"hidden_size": 32})", "hidden_size] expected 24, which text_config has, got 32"},
      {kQwen25, R"({"num_hidden_layers": 3})", "num_hidden_layers] expected 2"},
      {kQwen25, R"({"rope_theta": 1000000.0})", "rope_theta] expected 10000"},
      {kQwen25, R"({"use_sliding_window": true})",
       "use_sliding_window] the family qwen2_5_vl has no such setting"},
      {kQwen3, R"({"head_dim": 16})", "head_dim] expected 8"},
  });
}

TEST_CASE(
    "Qwen2.5-VL's head is tied where the file or its text_config says so, Qwen3-VL's where the file does") {
  const auto tied = [](const std::string& variant, const std::string& changes) {
    return spec_of(variant, changes).shape.tied_head;
  };
  CHECK_FALSE(
      tied(kQwen25, R"({"tie_word_embeddings": "absent", "text_config.tie_word_embeddings": "absent"})"));
  CHECK(tied(kQwen25, R"({"tie_word_embeddings": true})"));
  CHECK(tied(kQwen25, R"({"text_config.tie_word_embeddings": true})"));
  CHECK(tied(kFlatTied, "{}"));
  CHECK_FALSE(tied(kFlatTied, R"({"tie_word_embeddings": "absent"})"));
  CHECK(tied(kQwen3, R"({"text_config.tie_word_embeddings": "absent"})"));
  check_refused({
      {kQwen3, R"({"tie_word_embeddings": "absent"})",
       "text_config: tie_word_embeddings] expected that of the whole file, which is false where it is "
       "absent"},
      {kQwen3, R"({"text_config.tie_word_embeddings": false})",
       "which is true; write the same in both places"},
  });
}

TEST_CASE("what a multimodal Qwen has no meaning for, or contradicts itself in, is refused") {
  check_refused({
      {kQwen3, R"({"text_config": "absent"})", "'text_config' is missing"},
      {kQwen3, R"({"text_config.model_type": "qwen3"})", "text_config: model_type] expected 'qwen3_vl_text'"},
      {kQwen25, R"({"text_config.model_type": "qwen3_vl_text"})", "model_type] expected 'qwen2_5_vl_text'"},
      {kQwen3, R"({"text_config.num_key_value_heads": 3})", "text_config] num_attention_heads 4"},
      {kQwen3, R"({"text_config.num_key_value_heads": "absent"})", "'num_key_value_heads' is missing"},
      {kFlat, R"({"num_key_value_heads": "absent"})", "'num_key_value_heads' is missing"},
      {kFlat, R"({"head_dim": 8})", "head_dim] expected hidden_size by num_attention_heads, 6"},
      {kFlat, R"({"hidden_act": "gelu"})", "hidden_act] expected 'silu'"},
      {kFlat, R"({"attention_bias": true})", "attention_bias] the family qwen2_5_vl has no such setting"},
      {kFlat, R"({"sliding_window": null})", "sliding_window] is missing"},
      {kQwen3, R"({"text_config.use_sliding_window": true})",
       "use_sliding_window] the family qwen3_vl has no"},
      {kQwen3, R"({"text_config.sliding_window": 8})",
       "sliding_window] the family qwen3_vl has no such setting"},
      {kQwen3, R"({"text_config.num_experts": 8})", "num_experts] the family qwen3_vl has no such setting"},
      {kQwen3, R"({"quantization_config": {"bits": 4}})", "quantization_config] the family qwen3_vl"},
      {kFlat, R"({"quantization_config": {"bits": 4}})", "quantization_config] the family qwen2_5_vl"},
  });
  CHECK(spec_of(kQwen3, R"({"text_config.pad_token_id": 3, "pad_token_id": 5})").padding_id == 3);
  CHECK(spec_of(kFlat, R"({"pad_token_id": 5})").padding_id == 5);
}
