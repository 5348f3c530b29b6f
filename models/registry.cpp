#include "models/registry.h"

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "models/bamba/bamba.h"
#include "models/bare_floats.h"
#include "models/cohere/cohere.h"
#include "models/decoder_spec.h"
#include "models/deepseek/deepseek.h"
#include "models/ernie4_5/ernie4_5.h"
#include "models/exaone4/exaone4.h"
#include "models/falcon/falcon.h"
#include "models/gemma/gemma.h"
#include "models/gemma4/gemma4.h"
#include "models/glm/glm.h"
#include "models/glm4_moe/glm4_moe.h"
#include "models/gpt_neox/gpt_neox.h"
#include "models/gpt_oss/gpt_oss.h"
#include "models/granite/granite.h"
#include "models/lfm2/lfm2.h"
#include "models/llama/llama.h"
#include "models/minicpm3/minicpm3.h"
#include "models/mistral/mistral.h"
#include "models/mixtral/mixtral.h"
#include "models/olmo2/olmo2.h"
#include "models/olmoe/olmoe.h"
#include "models/phi3/phi3.h"
#include "models/qwen2/qwen2.h"
#include "models/qwen2_moe/qwen2_moe.h"
#include "models/qwen3/qwen3.h"
#include "models/qwen3_5/qwen3_5.h"
#include "models/qwen3_moe/qwen3_moe.h"
#include "models/qwen3_next/qwen3_next.h"
#include "models/qwen_vl/qwen_vl.h"
#include "models/seed_oss/seed_oss.h"
#include "models/smollm3/smollm3.h"
#include "models/stablelm/stablelm.h"
#include "models/starcoder2/starcoder2.h"
#include "models/youtu/youtu.h"

namespace lorikeet::models {

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies{{"bamba", bamba_spec},
                                             {"cohere", cohere_spec},
                                             {"cohere2", cohere2_spec},
                                             {"deepseek_v2", deepseek_v2_spec},
                                             {"deepseek_v3", deepseek_v3_spec},
                                             {"ernie4_5", ernie4_5_spec},
                                             {"ernie4_5_moe", ernie4_5_moe_spec},
                                             {"exaone4", exaone4_spec},
                                             {"falcon", falcon_spec},
                                             {"gemma", gemma_spec},
                                             {"gemma2", gemma2_spec},
                                             {"gemma3", gemma3_spec},
                                             {"gemma3_text", gemma3_text_spec},
                                             {"gemma4", gemma4_spec},
                                             {"gemma4_text", gemma4_text_spec},
                                             {"gemma4_unified", gemma4_unified_spec},
                                             {"gemma4_unified_text", gemma4_unified_text_spec},
                                             {"glm", glm_spec},
                                             {"glm4", glm4_spec},
                                             {"glm4_moe", glm4_moe_spec},
                                             {"glm4_moe_lite", glm4_moe_lite_spec},
                                             {"gpt_neox", gpt_neox_spec},
                                             {"gpt_oss", gpt_oss_spec},
                                             {"granite", granite_spec},
                                             {"granitemoehybrid", granitemoehybrid_spec},
                                             {"lfm2", lfm2_spec},
                                             {"lfm2_moe", lfm2_moe_spec},
                                             {"llama", llama_spec},
                                             {"minicpm3", minicpm3_spec},
                                             {"ministral", ministral_spec},
                                             {"ministral3", ministral3_spec},
                                             {"mistral", mistral_spec},
                                             {"mistral3", mistral3_spec},
                                             {"mixtral", mixtral_spec},
                                             {"olmo2", olmo2_spec},
                                             {"olmo3", olmo3_spec},
                                             {"olmoe", olmoe_spec},
                                             {"phi3", phi3_spec},
                                             {"qwen2", qwen2_spec},
                                             {"qwen2_5_vl", qwen2_5_vl_spec},
                                             {"qwen2_moe", qwen2_moe_spec},
                                             {"qwen2_vl", qwen2_vl_spec},
                                             {"qwen3", qwen3_spec},
                                             {"qwen3_5", qwen3_5_spec},
                                             {"qwen3_5_moe", qwen3_5_moe_spec},
                                             {"qwen3_5_moe_text", qwen3_5_moe_text_spec},
                                             {"qwen3_5_text", qwen3_5_text_spec},
                                             {"qwen3_moe", qwen3_moe_spec},
                                             {"qwen3_next", qwen3_next_spec},
                                             {"qwen3_vl", qwen3_vl_spec},
                                             {"qwen3_vl_moe", qwen3_vl_moe_spec},
                                             {"seed_oss", seed_oss_spec},
                                             {"smollm3", smollm3_spec},
                                             {"stablelm", stablelm_spec},
                                             {"starcoder2", starcoder2_spec},
                                             {"youtu", youtu_spec}};
  return kFamilies;
}

namespace {

// People give an adapter where its model is meant.
std::string adapter_hint(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "adapter_config.json")) return "";
  return ". This is an adapter: give the model that it belongs to here, and the adapter by --adapter, or, to "
         "train it further, by lora.init";
}

}  // namespace

Json read_config_json(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  if (!std::filesystem::exists(path)) {
    throw Error("[model.path] '" + folder.string() +
                "' has no config.json; expected a Hugging Face checkpoint folder" + adapter_hint(folder));
  }
  return Json::parse(name_bare_floats(read_file(path, 16U << 20)), path.string());
}

nn::CausalLMSpec model_spec(const JsonView& config) {
  const std::string type = config.at("model_type").as_string();
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.model_type == type) {
      nn::CausalLMSpec spec = family.spec(config);
      count_linear_parameters(spec);
      return spec;
    }
    known.push_back(family.model_type);
  }
  throw Error("[" + config.where() + "] model_type '" + escape_control(type) +
              "' is not supported; the families are " + join(known, ", "));
}

}  // namespace lorikeet::models
