#include "peft/lora_config.h"

namespace lorikeet::peft {

std::string last_part(std::string_view module) { return std::string(module.substr(module.rfind('.') + 1)); }

bool is_pattern(const std::vector<std::string>& names) {
  return names.size() == 1 && names[0].find_first_of("*+?()[]{}|^$\\") != std::string::npos;
}

}  // namespace lorikeet::peft
