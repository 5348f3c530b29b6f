#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/file.h"
#include "support/paths.h"

namespace lorikeet::test {

/// What the process writes to stderr while an object of this class lives.
class CapturedStderr {
 public:
  CapturedStderr() : before_(::dup(STDERR_FILENO)) {
    std::fflush(stderr);
    const UniqueFd file(::open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ::dup2(file.get(), STDERR_FILENO);
  }
  ~CapturedStderr() {
    std::fflush(stderr);
    ::dup2(before_.get(), STDERR_FILENO);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;

  std::string text() const { return read_file(folder_ / "stderr"); }

 private:
  TemporaryFolder folder_;
  UniqueFd before_;
};

}  // namespace lorikeet::test
