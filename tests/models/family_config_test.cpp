// What each family refuses of a config.json, by the golden checkpoints' files with something changed. An
// error names the file and the key.
#include "models/golden_config.h"
#include "nn/architecture.h"
#include "support/catch.h"

using namespace lorikeet;
using test::check_refused;
using test::spec_of;

namespace {

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
const std::string kOlmo3 = "olmo3/yarn/config.json";
const std::string kOldOlmo3 = "olmo3/yarn/config-transformers-4.json";
const std::string kExaone4 = "exaone4/windows/config.json";
const std::string kNoWindow = "exaone4/no-window/config.json";
const std::string kSeedOss = "seed_oss/plain/config.json";
const std::string kStablelm = "stablelm/parallel/config.json";
const std::string kStarcoder2 = "starcoder2/window/config.json";
const std::string kOldStarcoder2 = "starcoder2/window/config-transformers-4.json";
const std::string kGlm = "glm/partial/config.json";
const std::string kGlm4 = "glm4/norms-behind/config.json";
const std::string kCohere = "cohere/plain/config.json";
const std::string kCohere2 = "cohere2/windows/config.json";
const std::string kGranite4 = "granitemoehybrid/dense/config.json";
const std::string kErnie = "ernie4_5/biases/config.json";
const std::vector<std::string> kOfEachFamily = {
    kMistral,  kQwen2,      kQwen3, kLongrope, kNeox,    kFalcon,  kGemma,    kGemma2,
    kGemma3,   kNested,     kOlmo2, kOlmo3,    kExaone4, kSeedOss, kSmollm3,  kGranite,
    kStablelm, kStarcoder2, kGlm,   kGlm4,     kCohere,  kCohere2, kGranite4, kErnie};

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
                                     {kOlmo3, "num_key_value_heads"},
                                     {kExaone4, "num_key_value_heads"},
                                     {kSeedOss, "num_key_value_heads"},
                                     {kSmollm3, "num_key_value_heads"},
                                     {kGranite, "num_key_value_heads"},
                                     {kStablelm, "num_key_value_heads"},
                                     {kGlm, "num_key_value_heads"},
                                     {kCohere2, "num_key_value_heads"},
                                     {kErnie, "num_key_value_heads"},
                                     {kStarcoder2, "num_key_value_heads"}}) {
    check_refused({{variant, "{\"" + std::string(key) + "\": 3}", "num_"}});
  }
  check_refused(
      {{kFalcon, R"({"num_attention_heads": 5})", "num_attention_heads 5"},
       {kNeox, R"({"num_attention_heads": 5})", "num_attention_heads 5"},
       {kNeox, R"({"head_dim": 4})", "head_dim] expected hidden_size by num_attention_heads, 8"},
       {kStablelm, R"({"head_dim": 4})", "head_dim] expected hidden_size by num_attention_heads, 8"},
       {kQwen3, R"({"head_dim": "absent"})", "'head_dim' is missing"},
       {kSeedOss, R"({"head_dim": "absent"})", "'head_dim' is missing"},
       {"falcon/per-head/config.json", R"({"num_kv_heads": 2})", "num_kv_heads] expected as many"}});
}

TEST_CASE("unknown activations are refused by every family") {
  for (const auto& variant :
       {kMistral, kQwen2, kQwen3, kLongrope, kNeox, kSmollm3, kGranite, kGemma, kOlmo2, kOlmo3, kExaone4,
        kSeedOss, kStablelm, kStarcoder2, kGlm, kCohere, kGranite4, kErnie}) {
    check_refused({{variant, R"({"hidden_act": "relu"})", "hidden_act] expected"}});
  }
  check_refused({{kFalcon, R"({"activation": "relu"})", "activation] expected"},
                 {kGemma2, R"({"hidden_activation": "gelu"})", "hidden_activation] expected"},
                 {kGemma3, R"({"hidden_activation": "gelu"})", "hidden_activation] expected"}});
}

TEST_CASE("of Granite 4, lists of layers that don't fit and other positions are refused") {
  check_refused(
      {{kGranite4, R"({"layers_block_type": ["attention", "attention"]})", "layers_block_type] is not read"},
       {kGranite4, R"({"layer_types": "absent"})", "layer_types] is missing"},
       {kGranite4, R"({"layer_types": ["attention"]})", "layer_types] expected one for each"},
       {kGranite4, R"({"position_embedding_type": "alibi"})", "position_embedding_type] expected 'rope'"}});
  for (const nn::DecoderLayerSpec& layer : spec_of(kGranite4, R"({"position_embedding_type": null})").layers)
    CHECK(layer.rotary == nn::LayerRotary::kNone);
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
      {kStarcoder2, R"({"sliding_window": 0})", "sliding_window] expected an integer from 1"},
      {kGemma3, R"({"sliding_window": "absent"})", "sliding_window] is missing"},
      {kOlmo3, R"({"sliding_window": null})", "sliding_window] is missing, but layers slide"},
      {kOlmo3, R"({"layer_types": ["full_attention"]})", "layer_types] expected one for each"},
      {kExaone4, R"({"sliding_window": "absent"})", "sliding_window] is missing; expected the size"},
      {kExaone4, R"({"sliding_window": null})", "sliding_window] is missing, but layers slide"},
      {kExaone4, R"({"layer_types": null})", "sliding_window_pattern"},
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
      {kOldLongrope, R"({"rope_scaling": {"type": "yarn"}})",
       "'yarn' is not supported; default, linear, llama3 and longrope are"},
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
      {kOlmo3, R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})", "full_attention"},
      {kOlmo3, R"({"rope_theta": 300.0})", "'rope_theta' and 'rope_parameters.rope_theta' differ"},
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
  CHECK(spec_of(kOlmo3, none).rotary->theta == 5e5);
  CHECK(spec_of(kOlmo3, none).local_rotary->theta == 5e5);
  for (const auto& variant : {kMistral, kQwen2, kQwen3, kGranite, kGemma, kGemma2, kOlmo2, kExaone4, kSeedOss,
                              kStablelm, kStarcoder2})
    CHECK(spec_of(variant, none).rotary->theta == 1e4);
}

TEST_CASE("what StableLM's and StarCoder 2's files leave out is as transformers' classes have it") {
  const std::string short_file = R"({"rope_parameters": "absent", "use_parallel_residual": "absent",
      "use_qkv_bias": "absent", "qk_layernorm": "absent", "hidden_act": "absent",
      "tie_word_embeddings": "absent"})";
  const nn::CausalLMSpec stablelm = spec_of(kStablelm, short_file);
  CHECK(stablelm.rotary->rotary_dim == 2);  // a quarter of 8
  CHECK_FALSE(stablelm.layers[0].parallel);
  CHECK(stablelm.layers[0].mlp_norm.has_value());
  CHECK_FALSE(stablelm.layers[0].attention.qkv_bias);
  CHECK_FALSE(stablelm.shape.tied_head);
  const nn::CausalLMSpec starcoder2 =
      spec_of(kStarcoder2, R"({"use_bias": "absent", "hidden_act": "absent", "tie_word_embeddings": "absent",
                       "sliding_window": "absent", "num_key_value_heads": "absent"})");
  CHECK(starcoder2.layers[0].attention.output_bias);
  CHECK(starcoder2.layers[0].mlp.bias);
  CHECK(starcoder2.layers[0].mlp.activation == ops::Activation::kGeluTanh);
  CHECK(starcoder2.layers[0].attention.options.window == 0);
  CHECK(starcoder2.shape.kv_heads == 2);
  CHECK(starcoder2.shape.tied_head);
  const nn::DecoderLayerSpec unbiased = spec_of(kStarcoder2, R"({"use_bias": false})").layers[0];
  CHECK_FALSE((unbiased.attention.qkv_bias || unbiased.attention.output_bias || unbiased.mlp.bias));
}

TEST_CASE("the embedding leaves out the gradient of pad_token_id, as transformers' classes do") {
  const std::string absent = R"({"pad_token_id": "absent"})";
  for (const auto& variant : {kMistral, kQwen2, kQwen3, kGranite, kSmollm3, kLongrope, kGemma, kGemma2,
                              kGemma3, kOlmo2, kOlmo3, kExaone4, kSeedOss, kStablelm, kStarcoder2}) {
    CAPTURE(variant);
    CHECK(spec_of(variant, R"({"pad_token_id": 3})").padding_id == 3);
    CHECK(spec_of(variant, R"({"pad_token_id": null})").padding_id == -1);
    CHECK(spec_of(variant, R"({"pad_token_id": -1})").padding_id == 47);  // the last of 48 rows
    CHECK(spec_of(variant, R"({"pad_token_id": 48})").padding_id == -1);
    CHECK(spec_of(variant, R"({"pad_token_id": -49})").padding_id == -1);
  }
  CHECK(spec_of(kNested, R"({"text_config.pad_token_id": 3, "pad_token_id": 5})").padding_id == 3);
  // Absent: what the configuration class has.
  for (const auto& variant : {kMistral, kQwen2, kQwen3, kGranite, kExaone4, kStablelm, kStarcoder2})
    CHECK(spec_of(variant, absent).padding_id == -1);
  for (const auto& variant : {kGemma, kGemma2, kGemma3}) CHECK(spec_of(variant, absent).padding_id == 0);
  for (const auto& variant : {kOlmo2, kOlmo3, kSeedOss}) CHECK(spec_of(variant, absent).padding_id == 1);
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
      {kExaone4, R"({"attention_bias": true})", "attention_bias] the family exaone4 has no such setting"},
      {kOlmo3, R"({"mlp_bias": true})", "mlp_bias] the family olmo3 has no such setting"},
      {kOlmo3, R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "truncate": false}})",
       "rope_parameters: truncate] expected the settings of a layer type"},
      {kQwen3, R"({"attention_out_bias": true})", "attention_out_bias] the family qwen3 has no such setting"},
      {kQwen2, R"({"is_causal": false})", "is_causal"},
      {kQwen2, R"({"use_qkv_bias": true})", "use_qkv_bias] the family qwen2 has no such setting"},
      {kOlmo2, R"({"use_bias": true})", "use_bias] the family olmo2 has no such setting"},
      {kStablelm, R"({"qk_layernorm": true})", "qk_layernorm] true is not supported"},
      {kStablelm, R"({"sliding_window": 8})", "sliding_window] the family stablelm has no such setting"},
      {kStablelm, R"({"use_bias": true})", "use_bias"},
      {kStarcoder2, R"({"layer_types": ["full_attention", "full_attention"]})", "layer_types"},
      {kOldStarcoder2, R"({"norm_type": "rms_norm"})", "norm_type] expected 'layer_norm'"},
      {kOldStarcoder2, R"({"mlp_type": "llama"})", "mlp_type] expected 'default'"},
      {kOldStarcoder2, R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor] only 1 is supported"},
      {kOldNeox, R"({"partial_rotary_factor": 0.25})", "'rotary_pct' and 'partial_rotary_factor' differ"},
      {kOldNeox, R"({"rope_theta": 500000})", "'rotary_emb_base' and 'rope_theta' differ"},
  });
  for (const auto& variant : kOfEachFamily) {
    check_refused({{variant, R"({"quantization_config": {"bits": 4}})", "quantization_config] the family"}});
    CHECK_NOTHROW(
        spec_of(variant, R"({"quantization_config": null, "alibi": false, "num_local_experts": 0})"));
  }
}

TEST_CASE("OLMo 3's scaling is that of the layers without a window") {
  using Scaling = nn::RotarySpec::Scaling;
  const nn::CausalLMSpec spec = spec_of(kOlmo3), old = spec_of(kOldOlmo3, R"({"rope_theta": 300.0})");
  // Settings by layer type have their own numbers, whatever the whole file says.
  CHECK(spec_of(kOlmo3, R"({"original_max_position_embeddings": 32})").rotary == spec.rotary);
  CHECK(spec.rotary->scaling == Scaling::kYarn);
  CHECK(spec.local_rotary->scaling == Scaling::kNone);
  CHECK(spec.layers[0].rotary == nn::LayerRotary::kLocal);
  CHECK(spec.layers[1].rotary == nn::LayerRotary::kGlobal);
  CHECK(old.rotary->theta == 300);
  CHECK(old.local_rotary->theta == 300);
  // Absent: three layers with windows to one without.
  for (const auto& layer : spec_of(kOlmo3, R"({"layer_types": "absent", "num_hidden_layers": 8})").layers)
    CHECK(layer.attention.options.window == (layer.index % 4 == 3 ? 0 : 8));
}

TEST_CASE("EXAONE 4's layers without a window have rotary only where the file has no window") {
  const nn::CausalLMSpec windows = spec_of(kExaone4), none = spec_of(kNoWindow);
  CHECK(windows.layers[0].rotary == nn::LayerRotary::kGlobal);
  CHECK(windows.layers[1].rotary == nn::LayerRotary::kNone);
  for (const auto& layer : none.layers) CHECK(layer.rotary == nn::LayerRotary::kGlobal);
  CHECK(nn::architecture(spec_of(kNoWindow, R"({"layer_types": "absent"})")) == nn::architecture(none));
  const auto pattern = spec_of(kExaone4, R"({"layer_types": "absent", "sliding_window_pattern": 2})");
  CHECK(nn::architecture(pattern) == nn::architecture(windows));
}

TEST_CASE("Seed-OSS has biases on q, k and v where its file says nothing of any") {
  const auto layer = [](const std::string& changes) { return spec_of(kSeedOss, changes).layers[0]; };
  const auto plain =
      layer(R"({"attention_bias": "absent", "attention_out_bias": "absent", "mlp_bias": "absent"})");
  CHECK(plain.attention.qkv_bias);
  CHECK_FALSE((plain.attention.output_bias || plain.mlp.bias));
  CHECK_FALSE(layer(R"({"attention_bias": false})").attention.qkv_bias);
  CHECK(layer(R"({"attention_out_bias": true})").attention.output_bias);
  CHECK(layer(R"({"mlp_bias": true})").mlp.bias);
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
                                     {kStablelm, "layer_norm_eps"},
                                     {kStarcoder2, "norm_epsilon"},
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
