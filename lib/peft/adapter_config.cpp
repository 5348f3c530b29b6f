#include "peft/adapter_config.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::peft {
namespace {

Json::Array strings(const std::set<std::string>& values) { return {values.begin(), values.end()}; }

// Refuses a key whose value asks for something else than plain LoRA.
void require_empty(const JsonView& config, const char* key, const char* meaning) {
  const auto value = config.maybe(key);
  if (!value) return;
  const Json& json = value->json();
  const bool empty = (json.is_object() && json.object().empty()) ||
                     (json.is_array() && json.array().empty()) || (json.is_bool() && !json.boolean());
  if (!empty) throw Error("[" + value->where() + "] " + meaning + " is not supported");
}

}  // namespace

Json adapter_config_json(const LoraConfig& config, const std::string& base_model,
                         const std::vector<std::string>& modules) {
  // Names that were given are kept: "layers.0.mlp.up_proj" must not become "up_proj", which matches more.
  std::set<std::string> targets;
  if (config.targets_all_linear()) {
    for (const std::string& module : modules) targets.insert(last_part(module));
  } else {
    targets.insert(config.target_modules.begin(), config.target_modules.end());
  }
  Json json;
  json.set("alpha_pattern", Json(Json::Object{}));
  json.set("auto_mapping", Json());
  json.set("base_model_name_or_path", base_model);
  json.set("bias", "none");
  json.set("fan_in_fan_out", false);
  json.set("inference_mode", true);
  json.set("init_lora_weights", true);
  json.set("layers_pattern", Json());
  json.set("layers_to_transform", Json());
  json.set("lora_alpha", config.alpha == static_cast<double>(static_cast<std::int64_t>(config.alpha))
                             ? Json(static_cast<std::int64_t>(config.alpha))
                             : Json(config.alpha));
  json.set("lora_dropout", config.dropout);
  json.set("modules_to_save", Json());
  json.set("peft_type", "LORA");
  json.set("r", config.rank);
  json.set("rank_pattern", Json(Json::Object{}));
  json.set("revision", Json());
  json.set("target_modules", strings(targets));
  json.set("task_type", "CAUSAL_LM");
  json.set("use_dora", false);
  json.set("use_rslora", config.use_rslora);
  return json;
}

LoraConfig read_adapter_config(const JsonView& config) {
  const JsonView type = config.at("peft_type");
  if (type.as_string() != "LORA") {
    throw Error("[" + type.where() + "] expected LORA, got '" + escape_control(type.as_string()) + "'");
  }
  require_empty(config, "use_dora", "DoRA");
  require_empty(config, "fan_in_fan_out", "a transposed base weight");
  require_empty(config, "rank_pattern", "a rank of its own for some modules");
  require_empty(config, "alpha_pattern", "an alpha of its own for some modules");
  require_empty(config, "modules_to_save", "training whole modules");
  require_empty(config, "layers_to_transform", "adapting only some layers");
  require_empty(config, "lora_bias", "a bias in the adapter");
  require_empty(config, "trainable_token_indices", "training single tokens");
  require_empty(config, "target_parameters", "adapting parameters instead of modules");
  require_empty(config, "layer_replication", "a base with repeated layers");
  require_empty(config, "exclude_modules", "leaving out modules by name");
  require_empty(config, "alora_invocation_tokens", "an adapter that starts at a token");
  require_empty(config, "use_qalora", "QA-LoRA");
  if (config.get_string("bias", "none") != "none")
    throw Error("[" + config.where() + ": bias] only 'none' is supported");

  // PiSSA, OLoRA, CorDA and LoftQ change the base's weights as well: their adapters don't fit the base as it
  // is.
  const auto init = config.maybe("init_lora_weights");
  if (init && init->json().is_string() && init->as_string() != "gaussian" &&
      init->as_string() != "orthogonal" && init->as_string() != "eva") {
    throw Error("[" + init->where() + "] an adapter that was made with '" +
                escape_control(init->as_string()) + "' belongs to a changed base, which is not supported");
  }

  LoraConfig lora;
  lora.rank = config.at("r").as_int();
  lora.alpha = config.at("lora_alpha").as_number();
  lora.dropout = config.get_number("lora_dropout", 0);
  lora.use_rslora = config.get_bool("use_rslora", false);
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    throw Error("[" + config.where() + ": lora_dropout] expected a number in [0, 1)");
  }
  if (lora.rank < 1 || lora.rank > 65536 || !(lora.alpha > 0 && lora.alpha <= 1e6)) {
    throw Error("[" + config.where() + "] expected r from 1 to 65536 and lora_alpha above 0 and at most 1e6");
  }
  const JsonView targets = config.at("target_modules");
  lora.target_modules.clear();
  if (targets.json().is_string()) {
    if (targets.as_string() != "all-linear") {
      throw Error("[" + targets.where() +
                  "] a pattern as target_modules is not supported; expected a list of names");
    }
    lora.target_modules = {"all-linear"};
  } else {
    for (const JsonView& target : targets.items()) lora.target_modules.push_back(target.as_string());
    std::sort(lora.target_modules.begin(), lora.target_modules.end());
    if (lora.target_modules.empty()) throw Error("[" + targets.where() + "] is empty");
  }
  return lora;
}

}  // namespace lorikeet::peft
