#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lorikeet::data {

/// The content of a data file: mapped, or unpacked into memory where the file is gzipped or zstd-compressed
/// (told by the magic number).
class FileBytes {
 public:
  /// Throws Error when the file can't be read or its compressed data aren't well-formed.
  explicit FileBytes(const std::filesystem::path& path);
  /// The bytes themselves, for readers that are tried on made-up content; `name` stands in errors.
  FileBytes(std::string bytes, std::string name);

  std::string_view bytes() const { return unpacked_ ? std::string_view(*unpacked_) : map_->bytes(); }
  /// The file's name without its folder, control characters escaped.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::unique_ptr<MappedFile> map_;
  std::unique_ptr<std::string> unpacked_;
};

}  // namespace lorikeet::data
