#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "hub/download.h"
#include "hub/environment.h"
#include "hub/repository.h"

namespace lorikeet::hub {

enum class Absent {
  kDownload,  ///< what isn't in the cache is downloaded
  kError,     ///< it is an Error with the command that downloads it
};

/// Where in the cache a path "hub:..." leads: the snapshot's folder, or the file, folder or glob in it.
///
/// What is there whole is used as it is, without asking whether the Hub has something newer (`lorikeet
/// download` does that): the same command trains on the same bytes tomorrow. A snapshot that other tools
/// brought is completed at its own commit. Offline, or where the Hub can't be reached, a model's snapshot
/// counts as whole with its config, weights and tokenizer. Throws Error as download does.
std::filesystem::path resolve(const HubPath& path, const Environment& environment, Absent absent,
                              const DownloadOptions& options = {});

/// The repository whose snapshot in a cache `folder` is ("Qwen/Qwen3-0.6B"), for what names a base model to
/// other tools. Nothing for any other folder.
std::optional<std::string> repository_of_snapshot(const std::filesystem::path& folder);

}  // namespace lorikeet::hub
