#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// How the checkpoints of a run are named: `checkpoints/step_<n>` under its output folder.
namespace lorikeet::io {

inline constexpr const char* kCheckpointsFolder = "checkpoints";

/// The name of the folder with the checkpoint of `step`: "step_12".
std::string step_folder_name(std::int64_t step);

/// The step whose checkpoint has this name; nothing for a name that step_folder_name doesn't write, such as
/// "step_012" or "step_-1".
std::optional<std::int64_t> step_of_folder(std::string_view name);

}  // namespace lorikeet::io
