#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "comm/rendezvous.h"

namespace lorikeet::comm {

struct LaunchOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  int processes = 1;  ///< on this machine
  NodeOptions nodes;  ///< the other machines' launchers; by default there are none
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
/// With several nodes a launcher runs on each machine. They meet first (host_meeting, join_meeting), then the
/// ranks do, on a free port of the same address of node 0. All of the above holds for the ranks of all
/// machines, and every launcher ends with the same exit code. A launcher, a machine or a connection between
/// launchers that is lost is a failure too.
///
/// Returns the exit code: 0, 130 after an interrupt that all ranks obeyed, else the failed rank's (1 for a
/// signal). Throws Error when the launchers can't meet, or (kEnvironment) a process can't be started.
int launch(const LaunchOptions& options);

}  // namespace lorikeet::comm
