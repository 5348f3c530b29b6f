#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lorikeet::apps {

/// The folder of the running executable.
std::filesystem::path executable_folder();

/// The program of a recipe, beside this one. Throws Error (kEnvironment) with the reason and what to do when
/// it isn't there or can't be executed.
std::filesystem::path recipe_program(const std::string& recipe);

/// The folder of ready-made configs: beside the executable's installation, or in the source tree it was built
/// in; nothing for a program that was copied alone.
std::optional<std::filesystem::path> find_configs_folder();

/// The same. Throws Error (kEnvironment) that says where it was looked for and what to do when there is none.
std::filesystem::path configs_folder();

/// Names of all ready-made configs ("llama3_1/8B_lora"), sorted.
std::vector<std::string> config_names();

/// The file of a config that is named by its path, in which a leading ~ is the home folder, or as
/// config_names does; throws Error with a suggestion, or as configs_folder does where there is neither.
std::filesystem::path find_config(const std::string& text);

}  // namespace lorikeet::apps
