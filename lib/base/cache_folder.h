#pragma once

#include <filesystem>
#include <optional>

namespace lorikeet {

/// Where this program keeps what can be made again: "lorikeet" under XDG_CACHE_HOME, or under ~/.cache. Empty
/// where neither variable holds an absolute path. The folder need not exist. Source: XDG Base Directory
/// Specification.
std::optional<std::filesystem::path> cache_folder();

}  // namespace lorikeet
