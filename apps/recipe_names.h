#pragma once

#include <string>
#include <vector>

namespace lorikeet::apps {

// The recipes are programs of these names beside `lorikeet`.
constexpr const char* kSingleDeviceRecipe = "lora_finetune_single_device";
constexpr const char* kDistributedRecipe = "lora_finetune_distributed";

inline std::vector<std::string> recipe_names() { return {kSingleDeviceRecipe, kDistributedRecipe}; }

}  // namespace lorikeet::apps
