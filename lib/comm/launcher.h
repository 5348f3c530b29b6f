#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lorikeet::comm {

struct LaunchOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  int processes = 1;
  /// Seconds that the other ranks have to end by themselves once one has failed or a signal has come.
  double grace_seconds = 5;
};

/// Starts `processes` ranks of a program on this machine and watches them until all have ended. Rank 0 keeps
/// this process's stdout and stderr; the others' lines come with "[rank 2] " in front. The ranks meet on a
/// free port of the loopback address. SIGINT and SIGTERM are passed on once, so that a run can save; a second
/// one ends all at once. A rank that fails, is killed, or hangs in a collective for longer than its watchdog
/// allows brings the others down within ten seconds; what happened is told on stderr, with the rank, its
/// phase and its error. No process outlives this one.
///
/// Returns the exit code: 0, 130 after an interrupt that all ranks obeyed, else the failed rank's (1 for a
/// signal). Throws Error (kEnvironment) when a process can't be started.
int launch(const LaunchOptions& options);

}  // namespace lorikeet::comm
