#pragma once

#include <string>

#include "base/error.h"

namespace lorikeet::comm {

/// Thrown where another rank is lost or the time is up (kRunFailed): a consequence of someone else's failure,
/// which the launcher names instead where it knows it.
class PeerLost : public Error {
 public:
  explicit PeerLost(const std::string& message) : Error(message, ErrorKind::kRunFailed) {}
};

}  // namespace lorikeet::comm
