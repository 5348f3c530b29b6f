#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lorikeet::data {

/// How far compressed data may expand. DEFLATE reaches 1032 : 1 on zeros; text stays well under 100 : 1.
struct GzipLimits {
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< of output
  std::uint64_t max_ratio = 200;                     ///< output per input byte ...
  std::uint64_t ratio_free_bytes = 16 << 20;         ///< ... once there is more output than this
};

/// True if `bytes` begin with gzip's magic number (RFC 1952).
bool is_gzip(std::string_view bytes);

/// The contents of a gzip file, of all its members. `name` is the file's, for errors.
/// Throws Error for a file that is cut, corrupt, followed by other bytes, or expands beyond `limits`.
std::string gunzip(std::string_view bytes, const std::string& name, const GzipLimits& limits = {});

}  // namespace lorikeet::data
