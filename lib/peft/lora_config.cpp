#include "peft/lora_config.h"

#include <algorithm>
#include <cmath>

namespace lorikeet::peft {

std::string last_part(std::string_view module) { return std::string(module.substr(module.rfind('.') + 1)); }

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return use_rslora ? alpha / std::sqrt(r) : alpha / r;
}

bool LoraConfig::matches(const std::string& name, bool is_head) const {
  if (targets_all_linear()) return !is_head;
  return std::any_of(target_modules.begin(), target_modules.end(), [&](const std::string& target) {
    return name == target || name.ends_with("." + target);
  });
}

}  // namespace lorikeet::peft
