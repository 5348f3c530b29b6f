#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lorikeet::probe {

struct ChildCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  int inherited_fd = -1;  ///< a descriptor that the child keeps although it is close-on-exec
};

/// How a child ended and what it printed.
struct ChildResult {
  enum class End {
    kExited,
    kSignalled,
    kTimedOut,  ///< was killed when the time was up
    kStopped,   ///< was killed because another child had failed
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

/// Runs the commands at once, each as a process group of its own, and returns when all have ended: at the
/// latest a few seconds after `limit_seconds`, when what still runs is killed, with what it has started; also
/// a child that is stopped or that the kernel won't let go of. Once one fails, the others are killed too, for
/// they wait for it. No child outlives this process. Throws Error (kEnvironment) when one can't be started.
std::vector<ChildResult> run_children(const std::vector<ChildCommand>& commands, double limit_seconds);

}  // namespace lorikeet::probe
