#pragma once

#include <filesystem>
#include <string>

namespace lorikeet::hub {

/// The checksum by which the Hub names a file's content, and the cache its blob: sha256 of the bytes for
/// large files (LFS, Xet), git's object id for all others.
struct Digest {
  enum class Kind { kSha256, kGitSha1 };
  Kind kind = Kind::kSha256;
  std::string hex;  ///< 64 or 40 lower-case hexadecimal digits

  bool operator==(const Digest&) const = default;
};

/// True for `length` lower-case hexadecimal digits.
bool is_hex(const std::string& text, std::size_t length);

/// The digest of a file's bytes as they are on the disk now. git's is the SHA-1 of "blob <size>\0" and the
/// bytes. Throws Error where the file can't be read.
Digest file_digest(const std::filesystem::path& path, Digest::Kind kind);

}  // namespace lorikeet::hub
