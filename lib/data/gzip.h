#pragma once

#include <string>
#include <string_view>

#include "data/expansion.h"

namespace lorikeet::data {

/// True if `bytes` begin with gzip's magic number (RFC 1952).
bool is_gzip(std::string_view bytes);

/// The contents of a gzip file, of all its members. `name` is the file's, for errors.
/// Throws Error for a file that is cut, corrupt, followed by other bytes, or expands beyond `limits`.
std::string gunzip(std::string_view bytes, const std::string& name, const ExpansionLimits& limits = {});

}  // namespace lorikeet::data
