#include "models/qwen_vl/qwen_vl.h"

#include "base/strings.h"
#include "models/experts.h"
#include "models/multimodal.h"
#include "models/qwen2/qwen2.h"
#include "models/qwen3/qwen3.h"

namespace lorikeet::models {
namespace {

constexpr const char* kModel = "model.language_model";

// The decoder of the settings that `config` reads.
using Decoder = nn::CausalLMSpec (*)(ConfigReader& config);

// transformers has a default where a file lacks the key, which isn't the number of heads.
void require_kv_heads(ConfigReader& config) { config.size("num_key_value_heads", kLargestWidth); }

nn::CausalLMSpec qwen2_text(ConfigReader& config) {
  require_kv_heads(config);
  const DecoderSizes sizes = read_sizes(config, HeadDim::kImplied);
  return qwen2_decoder(config, sizes, read_qwen_windows(config, sizes),
                       {.multimodal = true, .absent_theta = 1e6}, kModel);
}

nn::CausalLMSpec qwen3_text(ConfigReader& config) {
  require_kv_heads(config);
  const DecoderSizes sizes = read_sizes(config, HeadDim::kRequired, {.head_dim = 128});
  const std::vector<std::int64_t> no_windows(static_cast<std::size_t>(sizes.layers), 0);
  return qwen3_decoder(config, sizes, no_windows, {.multimodal = true, .absent_theta = 5e5}, kModel);
}

nn::CausalLMSpec qwen3_moe_text(ConfigReader& config) {
  const DecoderSizes sizes = read_sizes(config, HeadDim::kOptional, {.intermediate_size = 5632});
  require_kv_heads(config);
  nn::ExpertsSpec experts = read_experts(config, sizes,
                                         {.count = 60,
                                          .per_token = 4,
                                          .width_key = "moe_intermediate_size",
                                          .width = 1408,
                                          .normalized = true,
                                          .reads_normalized = false});
  config.require_flag("norm_topk_prob", true, "transformers always divides a token's weights by their sum");
  require_experts_everywhere(config);
  experts.stacks.only = true;
  const std::vector<std::int64_t> no_windows(static_cast<std::size_t>(sizes.layers), 0);
  nn::CausalLMSpec spec =
      qwen3_decoder(config, sizes, no_windows, {.multimodal = true, .absent_theta = 5e5}, kModel);
  set_experts(spec, experts);
  return spec;
}

// transformers 4.52 to 4.57 wrote a flat file's numbers beside its text_config again, and reads the latter.
void require_agreement(ConfigReader& file, const nn::CausalLMSpec& spec) {
  const auto agree = [&file](const char* key, auto number) {
    const auto expected = static_cast<double>(number);
    if (!file.has(key)) return;
    const double found = file.view().at(key).as_number();
    if (found == expected) return;
    file.fail(key, "expected " + format_number("%g", expected) + ", which text_config has, got " +
                       format_number("%g", found) + "; remove the wrong one");
  };
  agree("vocab_size", spec.shape.vocab_size);
  agree("hidden_size", spec.shape.hidden_size);
  agree("intermediate_size", spec.shape.intermediate_size);
  agree("num_hidden_layers", spec.shape.layers);
  agree("num_attention_heads", spec.shape.heads);
  agree("num_key_value_heads", spec.shape.kv_heads);
  agree("head_dim", spec.shape.head_dim);
  agree("rms_norm_eps", spec.final_norm.eps);
  agree("rope_theta", spec.rotary->theta);
  file.claim({"sliding_window"});  // without use_sliding_window it says nothing
}

nn::CausalLMSpec nested(const JsonView& json, const std::string& family, Decoder decoder) {
  ConfigReader file(json, family);
  file.claim({"text_config"});
  ConfigReader text(json.at("text_config"), family);
  text.choice("model_type", family + "_text", {family + "_text"});
  nn::CausalLMSpec spec = decoder(text);
  require_agreement(file, spec);
  file.finish();
  return spec;
}

nn::CausalLMSpec qwen2_family(const JsonView& json, const std::string& family) {
  nn::CausalLMSpec spec;
  if (json.has("text_config")) {
    spec = nested(json, family, qwen2_text);
    // Either of them ties, as in transformers.
    spec.shape.tied_head = spec.shape.tied_head || json.get_bool("tie_word_embeddings", false);
  } else {
    ConfigReader flat(json, family);
    spec = qwen2_text(flat);
  }
  spec.checkpoint_names = {.prefixes = {{"model.language_model.", "model."}},
                           .other_parts = {"visual.", "model.visual."}};
  return spec;
}

nn::CausalLMSpec qwen3_family(const JsonView& json, const std::string& family, Decoder decoder) {
  nn::CausalLMSpec spec = nested(json, family, decoder);
  ConfigReader text(json.at("text_config"), family);
  spec.shape.tied_head = read_tie_of_file(json, text, spec.shape.tied_head);
  spec.checkpoint_names.other_parts = {"model.visual."};
  return spec;
}

}  // namespace

nn::CausalLMSpec qwen2_vl_spec(const JsonView& json) { return qwen2_family(json, "qwen2_vl"); }

nn::CausalLMSpec qwen2_5_vl_spec(const JsonView& json) { return qwen2_family(json, "qwen2_5_vl"); }

nn::CausalLMSpec qwen3_vl_spec(const JsonView& json) { return qwen3_family(json, "qwen3_vl", qwen3_text); }

nn::CausalLMSpec qwen3_vl_moe_spec(const JsonView& json) {
  nn::CausalLMSpec spec = qwen3_family(json, "qwen3_vl_moe", qwen3_moe_text);
  // As published; transformers 5 also writes models that it made itself the other way.
  auto stacks = gate_up_stacks(/*transposed=*/true);
  const nn::ExpertsSpec& experts = *spec.layers.front().experts;
  stacks.front().in_features = experts.hidden_size;
  stacks.back().in_features = experts.intermediate_size;
  spec.checkpoint_names.expert_stacks = std::move(stacks);
  return spec;
}

}  // namespace lorikeet::models
