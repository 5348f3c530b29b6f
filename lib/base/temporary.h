#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lorikeet {

/// "<path>.tmp-<16 random hexadecimal digits>": a name beside `path` for what is renamed to `path` once it is
/// whole. Random instead of a process id: ids recur in containers, and what a killed process left would be in
/// the way of the next one. Throws Error (kEnvironment) when the system gives no random bytes.
std::filesystem::path temporary_beside(const std::filesystem::path& path);

/// What a file name of that form is temporary for: "run.json" for "run.json.tmp-0123456789abcdef", nothing
/// for any other name. Knows the form of older versions too, which ended in a process id.
std::optional<std::string> temporary_target(std::string_view name);

}  // namespace lorikeet
