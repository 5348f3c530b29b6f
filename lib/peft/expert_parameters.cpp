#include "peft/expert_parameters.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "peft/lora_config.h"

namespace lorikeet::peft {
namespace {

// In the order in which PEFT wraps them, which is that of the module's parameters: the last one is outermost.
constexpr std::array<const char*, 2> kParameters{"gate_up_proj", "down_proj"};
constexpr std::string_view kBaseLayer = ".base_layer";

// "model.layers.0.mlp.experts.gate_up_proj" -> "model.layers.0.mlp.experts"
std::string module_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

}  // namespace

bool is_expert_parameter(const std::string& parameter) {
  return std::find(kParameters.begin(), kParameters.end(), last_part(parameter)) != kParameters.end();
}

std::string within_layer(const std::string& parameter) {
  const std::size_t digit = parameter.find_first_of("0123456789");
  return digit == std::string::npos ? parameter : parameter.substr(parameter.find('.', digit) + 1);
}

std::string wrapper_name(const std::string& parameter,
                         const std::function<bool(const std::string& parameter)>& adapted) {
  const std::string module = module_of(parameter);
  std::string name = module;
  const auto own = std::find(kParameters.begin(), kParameters.end(), last_part(parameter));
  for (auto outer = own + 1; outer < kParameters.end(); ++outer) {
    if (adapted(module + "." + *outer)) name += kBaseLayer;
  }
  return name;
}

std::optional<std::string> wrapped_parameter(
    const std::string& wrapper, const std::function<bool(const std::string& parameter)>& adapted) {
  std::string module = wrapper;
  while (module.ends_with(kBaseLayer)) module.resize(module.size() - kBaseLayer.size());
  if (last_part(module) != "experts") return std::nullopt;
  for (const char* name : kParameters) {
    std::string parameter = module + "." + name;
    if (adapted(parameter) && wrapper_name(parameter, adapted) == wrapper) return parameter;
  }
  return std::nullopt;
}

}  // namespace lorikeet::peft
