#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "comm/signal_queue.h"

namespace lorikeet::apps {

struct ChildEnd {
  int exit_code = 0;         ///< 128 and the signal's number where one killed it
  bool interrupted = false;  ///< this process was told to end meanwhile
};

/// Runs a program to its end; what it prints goes to the file `log`. `variables` replace those of the same
/// name in its environment. It has a process group of its own: SIGINT, SIGTERM and SIGHUP to this process,
/// taken from `signals`, are passed on to it as SIGTERM, so that it can clean up; one that asks again
/// (comm::asks_again), or 15 seconds, kills it. It never outlives this process. Throws Error (kEnvironment)
/// when it can't be started.
ChildEnd run_child(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& variables,
                   const std::filesystem::path& log, const comm::SignalQueue& signals);

}  // namespace lorikeet::apps
