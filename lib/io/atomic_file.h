#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/file.h"

namespace lorikeet::io {

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
  std::uint64_t bytes_written() const { return written_; }
  const std::filesystem::path& path() const { return path_; }

  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  UniqueFd fd_;
  std::uint64_t written_ = 0;
  bool committed_ = false;
};

}  // namespace lorikeet::io
