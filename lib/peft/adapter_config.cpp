#include "peft/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"
#include "peft/expert_parameters.h"
#include "peft/target_rules.h"

namespace lorikeet::peft {
namespace {

constexpr std::int64_t kMostRank = 65536;

// Whole numbers without a point, as PEFT writes them.
Json number(double value) {
  if (std::abs(value) > kMostAlpha) return value;
  const auto whole = static_cast<std::int64_t>(value);
  return value == static_cast<double>(whole) ? Json(whole) : Json(value);
}

// What is of its own rank or alpha, by whole names too: PEFT sorts patterns when it writes them, so that
// another one of two that match would count.
template <typename F>
Json exceptions(const std::vector<std::string>& targets, F value, double usual) {
  Json::Object members;
  for (const std::string& target : targets) {
    if (value(target) != usual) members.emplace_back(target, number(value(target)));
  }
  return members;
}

// The names that an adapter's file has as its targets. Names that were given are kept, since
// "layers.0.mlp.up_proj" must not become "up_proj", which matches more. What is chosen by anything but names
// is written as whole names: PEFT 0.11 knows nothing of exclude_modules, and no pattern is read in two ways.
Json::Array target_names(const LoraConfig& config, const std::vector<std::string>& modules) {
  std::set<std::string> names;
  if (config.narrows_targets() || config.write_whole_names) {
    names.insert(modules.begin(), modules.end());
  } else if (config.targets_all_linear()) {
    for (const std::string& module : modules) names.insert(last_part(module));
  } else {
    names.insert(config.target_modules.begin(), config.target_modules.end());
  }
  return {names.begin(), names.end()};
}

// The names, or the one pattern, of `key`; none where it is absent, null or empty.
std::vector<std::string> names_or_pattern(const JsonView& config, const char* key) {
  const auto value = config.maybe(key);
  if (!value) return {};
  if (value->json().is_string()) return {value->as_string()};
  std::vector<std::string> names;
  for (const JsonView& name : value->items()) names.push_back(name.as_string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::int64_t> layers(const JsonView& config) {
  const auto value = config.maybe("layers_to_transform");
  if (!value) return {};
  if (value->json().is_integer()) return {value->as_int()};
  std::vector<std::int64_t> layers;
  for (const JsonView& layer : value->items()) layers.push_back(layer.as_int());
  return layers;
}

void require_range(bool in_range, const JsonView& value, const char* expected) {
  if (!in_range) throw Error("[" + value.where() + "] expected " + expected + ", got " + value.json().dump());
}

std::int64_t read_rank(const JsonView& value) {
  const std::int64_t rank = value.as_int();
  require_range(rank >= 1 && rank <= kMostRank, value, "a rank from 1 to 65536");
  return rank;
}

double read_alpha(const JsonView& value) {
  const double alpha = value.as_number();
  require_range(alpha > 0 && alpha <= kMostAlpha, value, "an alpha above 0 and at most 1e6");
  return alpha;
}

template <typename T>
LoraConfig::Pattern<T> read_pattern(const JsonView& config, const char* key, T (*read)(const JsonView&)) {
  LoraConfig::Pattern<T> pattern;
  const auto value = config.maybe(key);
  if (!value) return pattern;
  if (!value->json().is_object()) value->fail("an object");
  for (const auto& [name, unused] : value->json().object()) pattern.emplace_back(name, read(value->at(name)));
  return pattern;
}

// Whether a key asks for nothing: it is absent, null, empty or false.
bool is_empty(const JsonView& config, const char* key) {
  const auto value = config.maybe(key);
  if (!value) return true;
  const Json& json = value->json();
  return (json.is_object() && json.object().empty()) || (json.is_array() && json.array().empty()) ||
         (json.is_bool() && !json.boolean());
}

std::vector<std::string> read_parameters(const JsonView& config, const LoraConfig& lora) {
  if (is_empty(config, "target_parameters")) return {};
  const JsonView key = config.at("target_parameters");
  if (!key.json().is_array()) key.fail("a list of names");
  for (const JsonView& name : key.items()) {
    if (is_expert_parameter(name.as_string())) continue;
    throw Error("[" + name.where() + "] expected gate_up_proj or down_proj of experts, got '" +
                escape_control(name.as_string()) + "': no other parameter gets an adapter here");
  }
  if (lora.use_dora || lora.dropout > 0)
    throw Error("[" + key.where() + "] expected neither use_dora nor lora_dropout beside it, as in PEFT");
  return names_or_pattern(config, "target_parameters");
}

// Refuses a key whose value asks for something else than plain LoRA.
void require_empty(const JsonView& config, const char* key, const char* meaning) {
  if (!is_empty(config, key))
    throw Error("[" + config.at(key).where() + "] " + meaning + " is not supported");
}

}  // namespace

Json adapter_config_json(const LoraConfig& config, const std::string& base_model,
                         const std::vector<std::string>& modules,
                         const std::vector<std::string>& parameters) {
  const TargetRules rules(config);
  std::vector<std::string> targets = modules;
  targets.insert(targets.end(), parameters.begin(), parameters.end());
  Json json;
  json.set("alpha_pattern",
           exceptions(targets, [&](const std::string& m) { return rules.alpha(m); }, config.alpha));
  json.set("auto_mapping", Json());
  json.set("base_model_name_or_path", base_model);
  json.set("bias", "none");
  if (config.ensure_weight_tying) json.set("ensure_weight_tying", true);
  json.set("fan_in_fan_out", false);
  json.set("inference_mode", true);
  json.set("init_lora_weights", true);
  json.set("layers_pattern", Json());
  json.set("layers_to_transform", Json());
  json.set("lora_alpha", number(config.alpha));
  json.set("lora_dropout", config.dropout);
  json.set("modules_to_save",
           config.modules_to_save.empty()
               ? Json()
               : Json(Json::Array(config.modules_to_save.begin(), config.modules_to_save.end())));
  json.set("peft_type", "LORA");
  json.set("r", config.rank);
  json.set("rank_pattern",
           exceptions(
               targets, [&](const std::string& m) { return static_cast<double>(rules.rank(m)); },
               static_cast<double>(config.rank)));
  json.set("revision", Json());
  json.set("target_modules", target_names(config, modules));
  if (!parameters.empty()) {
    const std::set<std::string> names(config.target_parameters.begin(), config.target_parameters.end());
    json.set("target_parameters", Json::Array(names.begin(), names.end()));
  }
  json.set("task_type", "CAUSAL_LM");
  json.set("use_dora", config.use_dora);
  json.set("use_rslora", config.use_rslora);
  return json;
}

LoraConfig read_adapter_config(const JsonView& config) {
  const JsonView type = config.at("peft_type");
  if (type.as_string() != "LORA") {
    throw Error("[" + type.where() + "] expected LORA, got '" + escape_control(type.as_string()) + "'");
  }
  // fan_in_fan_out is of transformers' Conv1D: for the Linear modules of every family here PEFT takes true
  // for false, with a warning.
  require_empty(config, "lora_bias", "a bias in the adapter");
  require_empty(config, "trainable_token_indices", "training single tokens");
  require_empty(config, "layer_replication", "a base with repeated layers");
  require_empty(config, "alora_invocation_tokens", "an adapter that starts at a token");
  require_empty(config, "use_qalora", "QA-LoRA");
  require_empty(config, "use_bdlora", "BD-LoRA");
  require_empty(config, "kasa_config", "KaSA");
  require_empty(config, "monteclora_config", "MonteCLoRA");
  if (config.get_string("bias", "none") != "none")
    throw Error("[" + config.where() + ": bias] only 'none' is supported");

  // PiSSA, OLoRA, CorDA and LoftQ change the base's weights as well: their adapters don't fit the base as it
  // is.
  constexpr std::array<std::string_view, 4> kOfPlainBase{"gaussian", "orthogonal", "eva", "mica"};
  const auto init = config.maybe("init_lora_weights");
  if (init && init->json().is_string() &&
      std::find(kOfPlainBase.begin(), kOfPlainBase.end(), ascii_lower(init->as_string())) ==
          kOfPlainBase.end()) {
    throw Error("[" + init->where() + "] an adapter that was made with '" +
                escape_control(init->as_string()) + "' belongs to a changed base, which is not supported");
  }

  LoraConfig lora;
  lora.rank = read_rank(config.at("r"));
  lora.alpha = read_alpha(config.at("lora_alpha"));
  lora.dropout = config.get_number("lora_dropout", 0);
  lora.use_dora = config.get_bool("use_dora", false);
  lora.use_rslora = config.get_bool("use_rslora", false);
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    throw Error("[" + config.where() + ": lora_dropout] expected a number in [0, 1)");
  }
  config.at("target_modules");
  lora.target_modules = names_or_pattern(config, "target_modules");
  lora.target_parameters = read_parameters(config, lora);
  if (lora.target_modules.empty() && lora.target_parameters.empty())
    throw Error("[" + config.where() + ": target_modules] is empty");
  lora.exclude_modules = names_or_pattern(config, "exclude_modules");
  lora.layers_to_transform = layers(config);
  lora.layers_pattern = names_or_pattern(config, "layers_pattern");
  lora.rank_pattern = read_pattern<std::int64_t>(config, "rank_pattern", read_rank);
  lora.alpha_pattern = read_pattern<double>(config, "alpha_pattern", read_alpha);
  if (!is_empty(config, "modules_to_save"))
    lora.modules_to_save = names_or_pattern(config, "modules_to_save");
  lora.ensure_weight_tying = config.get_bool("ensure_weight_tying", false);
  lora.from_file = true;
  return lora;
}

}  // namespace lorikeet::peft
