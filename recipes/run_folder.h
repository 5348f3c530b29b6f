#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "io/folders.h"

namespace lorikeet::recipes {

/// A run's output folder, locked for as long as the object lives: decides whether a run starts, goes on or is
/// already done, so that no run ever writes over another by accident.
class RunFolder {
 public:
  enum class Begin {
    kFresh,     ///< nothing there, or `overwrite`
    kResume,    ///< an unfinished run of the same settings and data
    kFinished,  ///< a finished one
  };

  /// What identifies a run.
  struct Identity {
    std::string settings;  ///< resolved settings as YAML; compared are those that change numbers
    std::string data;      ///< fingerprint
    std::string model;     ///< fingerprint of the base checkpoint
    std::string policy;    ///< fingerprint
  };

  /// Makes the folder where it is absent and locks it. Throws Error when it can't be written, another process
  /// holds it, or it holds files that aren't a run's.
  explicit RunFolder(std::filesystem::path path);

  /// Compares with the run that is there. Throws Error, naming what differs, when it is another one and
  /// `overwrite` is false; with `overwrite` its files are removed.
  Begin begin(const Identity& identity, bool resume, bool overwrite);

  /// Writes run.json: `identity`, whether the run is finished, and `facts` for people.
  void write(const Identity& identity, bool finished, const Json& facts) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  void remove_run() const;

  std::filesystem::path path_;
  std::optional<io::FolderLock> lock_;
};

}  // namespace lorikeet::recipes
