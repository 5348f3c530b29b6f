#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/environment.h"
#include "hub/fetch.h"
#include "hub/repository.h"

namespace lorikeet::hub {

struct DownloadOptions {
  std::vector<std::string> include;  ///< globs; none: what select_files takes by itself
  int parallel = 4;                  ///< files at a time
  bool on_terminal = false;          ///< progress as one line that is rewritten
  RetryPolicy retry;
};

/// Brings a repository's files into the cache and returns the snapshot's folder. What is there already isn't
/// fetched again, what was begun is continued. The branch's reference moves to the new snapshot once all
/// files are in place. Throws Error: kUsage for what isn't there or not accessible, kEnvironment for
/// networks, disks and a server that gives other bytes than it lists; what was fetched is kept for the next
/// attempt.
std::filesystem::path download(const Repository& repository, const Environment& environment,
                               const DownloadOptions& options = {});

/// `lorikeet download REPO ...`, as a user types it for this repository.
std::string download_command(const Repository& repository, const std::vector<std::string>& include = {});

}  // namespace lorikeet::hub
