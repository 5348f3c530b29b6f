#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace lorikeet {

/// Owns a POSIX file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd();

  int get() const { return fd_; }
  /// Gives the descriptor up to the caller.
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A regular file mapped read-only into memory for as long as the object lives.
/// The size is the file's when opened; a file that shrinks afterwards is the caller's risk.
class MappedFile {
 public:
  /// Throws Error when the file can't be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Tells the kernel that [offset, offset + length) won't be read again: its whole pages leave the
  /// resident set. Reading them later is still right, only slower.
  void drop_pages(std::size_t offset, std::size_t length) const;

 private:
  std::filesystem::path path_;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole of a regular file; throws Error if it can't be read or is larger than `limit_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes = std::uint64_t{1} << 30);

/// Writes `path` so that a reader, or a crash at any moment, sees the old file or the whole new one:
/// a temporary file beside it, fsync, rename, fsync of the folder. Throws Error (kEnvironment).
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode = 0644);

/// fsync of a file or folder, by path; throws Error.
void sync_path(const std::filesystem::path& path);

}  // namespace lorikeet
