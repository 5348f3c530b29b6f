#pragma once

#include <string>

#include "base/file.h"

namespace lorikeet::comm {

struct Listener {
  UniqueFd fd;  ///< close-on-exec
  int port = 0;
};

/// A TCP socket that listens on `host` (a name or address of this machine) alone; port 0: a free one. Throws
/// Error (kEnvironment) when the name is unknown or the port taken.
Listener listen_on(const std::string& host, int port);

}  // namespace lorikeet::comm
