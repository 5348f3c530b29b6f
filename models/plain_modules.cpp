#include "models/plain_modules.h"

#include <algorithm>
#include <string_view>

namespace lorikeet::models {
namespace {

std::vector<std::string> strings(const JsonView& settings, const char* key) {
  std::vector<std::string> all;
  const auto list = settings.maybe(key);
  if (!list) return all;
  for (const JsonView& item : list->items()) all.push_back(item.as_string());
  return all;
}

}  // namespace

PlainModules::PlainModules(const JsonView& config) {
  const auto settings = config.maybe("quantization_config");
  if (!settings) return;
  // transformers' modules_to_not_convert of such files lists what isn't an expert anyway.
  all_but_experts_ = settings->get_string("quant_method", "") == "mxfp4";
  for (const char* key : {"llm_int8_skip_modules", "modules_to_not_convert"}) {
    for (const std::string& name : strings(*settings, key)) {
      patterns_.emplace_back("\\A(?:" + name + ")(?:(?<=\\.)|(?=\\.|\\z))", settings->where() + "." + key);
      endings_.push_back(name);
    }
  }
  constexpr std::string_view kExpression = "re:";
  for (const std::string& name : strings(*settings, "ignore")) {
    if (name.starts_with(kExpression)) {
      patterns_.emplace_back("\\A(?:" + name.substr(kExpression.size()) + ")", settings->where() + ".ignore");
    } else {
      names_.push_back(name);
    }
  }
}

bool PlainModules::contains(const std::string& module) const {
  if (all_but_experts_ && module.find(".experts.") == std::string::npos) return true;
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const text::Regex& regex) { return regex.search(module, 0).has_value(); }) ||
         std::any_of(endings_.begin(), endings_.end(),
                     [&](const std::string& ending) { return module.ends_with(ending); }) ||
         std::find(names_.begin(), names_.end(), module) != names_.end();
}

}  // namespace lorikeet::models
