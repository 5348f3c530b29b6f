#include "peft/lora_config.h"

#include <cmath>

#include "text/regex.h"

namespace lorikeet::peft {

std::string last_part(std::string_view module) { return std::string(module.substr(module.rfind('.') + 1)); }

LoraConfig as_plain(LoraConfig config) {
  if (!config.starts_from_base) return config;
  config.starts_from_base = false;
  const double alphas = config.use_rslora ? std::sqrt(2.0) : 2.0;
  config.rank *= 2;
  config.alpha *= alphas;
  for (auto& [name, rank] : config.rank_pattern) rank *= 2;
  for (auto& [name, alpha] : config.alpha_pattern) alpha *= alphas;
  return config;
}

bool LoraConfig::narrows_targets() const {
  return is_pattern(target_modules) || !exclude_modules.empty() || !layers_to_transform.empty();
}

bool is_pattern(const std::vector<std::string>& names) {
  return names.size() == 1 && text::has_regex_syntax(names[0]);
}

}  // namespace lorikeet::peft
