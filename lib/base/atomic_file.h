#pragma once

#include <filesystem>
#include <string_view>

#include "base/file.h"

namespace lorikeet {

/// A file written in pieces that appears under its name all at once: the pieces go into a temporary file
/// beside it, `commit` syncs and renames. Destroyed before that, it leaves nothing behind. For contents at
/// hand as one string there is write_file_atomic.
class AtomicFile {
 public:
  /// Throws Error (kEnvironment) if the temporary file can't be made.
  explicit AtomicFile(std::filesystem::path path, unsigned mode = 0644);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws Error (kEnvironment), e.g. on a full disk.
  void write(std::string_view bytes);

  /// Has the system begin to bring to disk what was written, and doesn't wait: `commit` of a large file then
  /// waits for its end alone.
  void start_writeback();

  void commit();

  /// Where the bytes lie until `commit`.
  const std::filesystem::path& temporary_path() const { return temporary_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  UniqueFd fd_;
  bool committed_ = false;
};

}  // namespace lorikeet
