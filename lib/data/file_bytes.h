#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lorikeet::data {

/// The content of a data file: mapped, or unpacked into memory where the file is gzipped or zstd-compressed
/// (recognised by the magic number).
class FileBytes {
 public:
  /// How much of a mapped file readers that go through it leave in memory before they release it.
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

  /// Throws Error when the file can't be read or its compressed data aren't well-formed.
  explicit FileBytes(const std::filesystem::path& path);
  /// The bytes themselves, for readers that are tried on made-up content; `name` stands in errors.
  FileBytes(std::string bytes, std::string name);

  std::string_view bytes() const { return unpacked_ ? std::string_view(*unpacked_) : map_->bytes(); }
  /// The same without a UTF-8 byte order mark in front.
  std::string_view text() const;
  /// The file's name without its folder, control characters escaped.
  const std::string& name() const { return name_; }

  /// Says that `part` of bytes() is done with: it leaves the resident set (and comes back when it is read).
  /// Does nothing to unpacked bytes.
  void release(std::string_view part) const;

 private:
  std::string name_;
  std::unique_ptr<MappedFile> map_;
  std::unique_ptr<std::string> unpacked_;
};

/// Releases the bytes of a file that a reader going from front to back has passed, a piece at a time.
class PassedBytes {
 public:
  /// `file` must outlive the object.
  explicit PassedBytes(const FileBytes& file) : file_(file) {}

  /// Says that the bytes before `place`, which points into them, are done with.
  void pass(const char* place);

 private:
  const FileBytes& file_;
  std::size_t released_ = 0;
};

}  // namespace lorikeet::data
