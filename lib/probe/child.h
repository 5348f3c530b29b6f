#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lorikeet::probe {

struct ChildCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  int inherited_fd = -1;  ///< a close-on-exec descriptor that the child inherits all the same
};

/// How a child ended and what it printed.
struct ChildResult {
  enum class End {
    kExited,
    kSignalled,
    kTimedOut,  ///< killed at the time limit
    kStopped,   ///< killed because another child had failed
  };
  End end = End::kExited;
  int code = 0;        ///< exit code, or the signal's number
  std::string output;  ///< stdout, the last mebibyte
  std::string errors;  ///< stderr, the last 4096 bytes

  bool succeeded() const { return end == End::kExited && code == 0; }
  /// "ended with exit code 3: <the last line of stderr>", "was killed by signal 11 (...)", "did not end
  /// within 20 s; its last words: ..."; "" after a success.
  std::string trouble(double limit_seconds) const;
};

/// Runs the commands in parallel, each as a process group of its own, and returns when all have ended. At
/// `limit_seconds` the groups that still run are killed, and a few seconds later it returns in any case, even
/// when a child is stuck in the kernel. When one child fails the others are killed too, since they wait for
/// it. No child outlives this process. Throws Error (kEnvironment) when one can't be started.
std::vector<ChildResult> run_children(const std::vector<ChildCommand>& commands, double limit_seconds);

}  // namespace lorikeet::probe
