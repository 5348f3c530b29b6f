#pragma once

#include <string>
#include <string_view>

#include "data/expansion.h"

namespace lorikeet::data {

/// True if `bytes` begin as a zstd frame does (RFC 8878), or as a skippable frame.
bool is_zstd(std::string_view bytes);

/// The contents of a zstd file, of all its frames. `name` is the file's, for errors.
/// Throws Error for a file that is cut, corrupt, followed by other bytes, or expands beyond `limits`.
std::string unzstd(std::string_view bytes, const std::string& name, const ExpansionLimits& limits = {});

}  // namespace lorikeet::data
