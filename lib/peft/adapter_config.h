#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "peft/lora_config.h"

namespace lorikeet::peft {

/// The largest alpha that an adapter_config.json may have.
inline constexpr double kMostAlpha = 1e6;

/// adapter_config.json as PEFT reads it (keys known since PEFT 0.11, but for target_parameters, which is
/// written where there are some). `base_model` is the path of the base checkpoint; `modules` and
/// `parameters` are the full names of the adapted ones. Modules' names, or their last parts for a plain
/// "all-linear", are written where targets are chosen by other means than names.
Json adapter_config_json(const LoraConfig& config, const std::string& base_model,
                         const std::vector<std::string>& modules,
                         const std::vector<std::string>& parameters = {});

/// The LoRA settings of an adapter_config.json. Throws Error, naming the key, for what this project doesn't
/// compute: other PEFT types, biases, extra trained modules.
LoraConfig read_adapter_config(const JsonView& config);

}  // namespace lorikeet::peft
