#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace lorikeet::io {

/// The file that lists a folder's other files with their sizes and SHA-256:
/// {"format": 1, "files": {"<name>": {"bytes": n, "sha256": "<hex>"}}}.
inline constexpr const char* kManifestFile = "manifest.json";

/// The list of a manifest, {"<name>": {"bytes": n, "sha256": "<hex>"}}, of these files in `folder`.
Json list_files(const std::filesystem::path& folder, const std::vector<std::string>& names);

/// Throws Error naming the first listed file that is missing or isn't what was written.
void check_files(const std::filesystem::path& folder, const JsonView& list);

/// Writes the manifest of all regular files directly in `folder`, our marker left out. Throws Error
/// (kEnvironment).
void write_manifest(const std::filesystem::path& folder);

/// Reads every file that the folder's manifest lists, and throws Error naming the first one that is missing
/// or isn't what was written; also when the manifest itself is damaged. Warns where there is no manifest: the
/// first version of this program wrote none.
void check_manifest(const std::filesystem::path& folder);

}  // namespace lorikeet::io
