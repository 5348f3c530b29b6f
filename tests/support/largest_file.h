#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): SIGXFSZ is POSIX's
#include <sys/resource.h>

#include "support/catch.h"

namespace lorikeet::test {

/// While it lives, a file beyond so many bytes can't be written, as on a full disk: the write that crosses
/// the limit is short, the next one fails.
class LargestFile {
 public:
  explicit LargestFile(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit now{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
  }
  ~LargestFile() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  LargestFile(const LargestFile&) = delete;
  LargestFile& operator=(const LargestFile&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace lorikeet::test
