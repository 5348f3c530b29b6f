#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "base/file.h"

namespace lorikeet {

/// Calls `use` with [begin, end) of the file in pieces of 8 MiB at most, each of which leaves the resident
/// set behind it: a large file that is read once must not count as the process's own memory.
void for_each_piece(const MappedFile& file, std::size_t begin, std::size_t end,
                    const std::function<void(std::string_view)>& use);
inline void for_each_piece(const MappedFile& file, const std::function<void(std::string_view)>& use) {
  for_each_piece(file, 0, file.bytes().size(), use);
}

}  // namespace lorikeet
