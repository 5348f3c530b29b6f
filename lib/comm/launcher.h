#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lorikeet::comm {

struct LaunchOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  int processes = 1;
  /// Seconds that the other ranks have to end by themselves once one has failed.
  double grace_seconds = 5;
};

/// Starts `processes` ranks of a program on this machine and watches them until all have ended. Rank 0 keeps
/// this process's stdout and stderr; the other ranks' lines are printed with "[rank 2] " in front. The ranks
/// meet on a free port of the loopback address.
///
/// The first SIGINT or SIGTERM is passed on as SIGTERM, so that the run can save; a second one kills all
/// ranks at once. A rank that fails, is killed, or waits in a collective for longer than its watchdog allows
/// ends the other ranks within ten seconds, and stderr names it, its phase and its error. No rank outlives
/// this process.
///
/// Returns the exit code: 0, 130 after an interrupt that all ranks obeyed, else the failed rank's (1 for a
/// signal). Throws Error (kEnvironment) when a process can't be started.
int launch(const LaunchOptions& options);

}  // namespace lorikeet::comm
