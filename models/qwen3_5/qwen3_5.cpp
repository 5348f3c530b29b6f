#include "models/qwen3_5/qwen3_5.h"

#include <string>
#include <vector>

#include "models/multimodal.h"
#include "models/qwen3_5/delta_decoder.h"

namespace lorikeet::models {
namespace {

DeltaDecoderForm dense_form() { return {.sizes = {.kv_heads = 4, .head_dim = 256}}; }

DeltaDecoderForm experts_form() {
  return {.sizes = {.intermediate_size = 512, .kv_heads = 2, .head_dim = 256},
          .experts = ExpertsDefaults{.count = 256,
                                     .per_token = 8,
                                     .width_key = "moe_intermediate_size",
                                     .width = 512,
                                     .normalized = true,
                                     .reads_normalized = false},
          .shared_width = 512};
}

// Published files have the experts of a layer in one tensor; transformers writes each by itself.
std::vector<io::CheckpointNames::ExpertStack> stacks_of(const DeltaDecoderForm& form) {
  if (!form.experts) return {};
  return gate_up_stacks(/*transposed=*/false);
}

nn::CausalLMSpec text_spec(const JsonView& json, const std::string& family, const DeltaDecoderForm& form) {
  ConfigReader config(json, family);
  nn::CausalLMSpec spec = delta_decoder(config, "model", form);
  // The language model of a multimodal checkpoint that someone took the tower off.
  spec.checkpoint_names = {.prefixes = {{"model.", "model.language_model."}},
                           .expert_stacks = stacks_of(form),
                           .other_parts = {"model.visual.", "mtp."}};
  return spec;
}

nn::CausalLMSpec multimodal_spec(const JsonView& json, const std::string& family,
                                 const DeltaDecoderForm& form) {
  ConfigReader file(json, family);
  file.claim({"text_config"});
  ConfigReader text(json.at("text_config"), family);
  text.choice("model_type", family + "_text", {family + "_text"});
  nn::CausalLMSpec spec = delta_decoder(text, "model.language_model", form);
  spec.shape.tied_head = read_tie_of_file(json, text, spec.shape.tied_head);
  file.finish();
  // AutoModelForCausalLM makes a model without the tower of these files, and PEFT's adapters have its names.
  spec.checkpoint_names = {.prefixes = {{"model.language_model.", "model."}},
                           .expert_stacks = stacks_of(form),
                           .other_parts = {"model.visual.", "mtp."}};
  return spec;
}

}  // namespace

nn::CausalLMSpec qwen3_5_text_spec(const JsonView& json) {
  return text_spec(json, "qwen3_5_text", dense_form());
}

nn::CausalLMSpec qwen3_5_spec(const JsonView& json) { return multimodal_spec(json, "qwen3_5", dense_form()); }

nn::CausalLMSpec qwen3_5_moe_text_spec(const JsonView& json) {
  return text_spec(json, "qwen3_5_moe_text", experts_form());
}

nn::CausalLMSpec qwen3_5_moe_spec(const JsonView& json) {
  return multimodal_spec(json, "qwen3_5_moe", experts_form());
}

}  // namespace lorikeet::models
