#pragma once

#include <atomic>
#include <filesystem>
#include <string>

#include "base/file.h"

namespace lorikeet::hub {

/// Keeps two processes, or threads, from downloading one blob at once: flock on a file, as huggingface_hub
/// takes it. It saves traffic; no content depends on it (see fetch.h), so that file systems without locks do.
class CacheLock {
 public:
  /// Waits for whoever holds it, and says so once with `what`. Gives up waiting without a lock once `stop` is
  /// true. Throws Error (kEnvironment) where the file can't be made.
  CacheLock(const std::filesystem::path& path, const std::string& what, const std::atomic<bool>& stop);

 private:
  UniqueFd fd_;
};

}  // namespace lorikeet::hub
