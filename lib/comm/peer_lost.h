#pragma once

#include <string>

#include "base/error.h"

namespace lorikeet::comm {

/// Thrown when another rank is lost or a time limit has passed (kRunFailed). It is a consequence of another
/// rank's failure, which the launcher or PeerWatch reports in its place when it knows it.
class PeerLost : public Error {
 public:
  explicit PeerLost(const std::string& message) : Error(message, ErrorKind::kRunFailed) {}
};

}  // namespace lorikeet::comm
