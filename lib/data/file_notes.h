#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lorikeet::data {

/// What changes with a file's content: size, inode, time of change and of status change (ctime), which no
/// program can set back.
struct FileFacts {
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  /// Whether the file system's clock had ticked since the last change when the facts were taken: only then
  /// does every later change show in them.
  bool settled = false;

  bool operator==(const FileFacts& other) const {
    return size == other.size && inode == other.inode && mtime_ns == other.mtime_ns &&
           ctime_ns == other.ctime_ns;
  }
};

/// The facts of `file` now; throws Error where there is none. A file that was changed just now is waited for,
/// some hundredths of a second, so that they are settled.
FileFacts facts_of(const std::filesystem::path& file);

/// sha256 of a file, read piece by piece. Throws Error if it can't be read.
std::string file_sha256(const std::filesystem::path& file);

/// Remembers what reading all of a large file gave (its hash, say) as long as the file's facts are the same,
/// as git's index does: hashing gigabytes at every start takes longer than the start. A note is a small file
/// in the cache folder, named by the file's path. Notes are only kept of files of at least `least_bytes`;
/// smaller ones are read anew each time. A note can't see what changes a disk's bytes behind the file
/// system's back.
class FileNotes {
 public:
  FileNotes(std::filesystem::path folder, std::uint64_t least_bytes)
      : folder_(std::move(folder)), least_bytes_(least_bytes) {}

  /// Whether notes are kept of files of so many bytes.
  bool wants(std::uint64_t bytes) const { return bytes >= least_bytes_; }

  /// What was kept for `file` as it is now; nullopt where nothing was, or the file isn't as it was.
  std::optional<std::string> recall(const std::filesystem::path& file) const;

  /// Keeps `value`, computed from `file` after `before` was taken. Does nothing where the file has changed
  /// since or is small, the facts aren't settled, or the note can't be written.
  void keep(const std::filesystem::path& file, const FileFacts& before, const std::string& value) const;

 private:
  std::filesystem::path note_of(const std::filesystem::path& file) const;

  std::filesystem::path folder_;
  std::uint64_t least_bytes_;
};

}  // namespace lorikeet::data
