#pragma once

#include <string_view>

namespace lorikeet {

/// Writes all of `bytes` to a file descriptor, over short writes and signals. Returns 0, or the errno of the
/// call that failed: after a short write that is the one of the next call, which says why (a full disk, a
/// limit).
[[nodiscard]] int write_all(int fd, std::string_view bytes);

}  // namespace lorikeet
