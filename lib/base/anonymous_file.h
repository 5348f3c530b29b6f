#pragma once

#include <filesystem>
#include <string_view>

#include "base/file.h"

namespace lorikeet {

/// A file without a name, for what doesn't fit memory and only this process needs: its space is free again
/// when the object and all maps of it are gone, also where the process was killed.
class AnonymousFile {
 public:
  /// In `folder`, readable by this user alone. Throws Error (kEnvironment) if it can't be made.
  explicit AnonymousFile(std::filesystem::path folder);

  /// Appends; throws Error (kEnvironment), e.g. on a full disk.
  void write(std::string_view bytes);

  /// A path that MappedFile can open while this object lives.
  std::filesystem::path path() const;

 private:
  std::filesystem::path folder_;
  UniqueFd fd_;
};

}  // namespace lorikeet
