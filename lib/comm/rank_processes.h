#pragma once

#include <poll.h>
#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/board.h"
#include "comm/verdict.h"

namespace lorikeet::comm {

/// What this machine's ranks are started with.
struct RankPlan {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  int processes = 1;  ///< on this machine
  int first_rank = 0;
  int world_size = 1;
  int node = 0;
  int nodes = 1;
  std::string store;   ///< "host:port"
  int listen_fd = -1;  ///< rank 0's, for the store
  sigset_t signals{};  ///< the mask that they run with
};

/// OMP_NUM_THREADS of each of so many processes of this machine, unless it is set: ranks that take all cores
/// each, and spin there, get in each other's way.
int threads_of_each(int processes);

/// This machine's ranks: their processes, what they print, where they stand and how they ended.
/// Rank 0 keeps this process's stdout and stderr; the others' lines are printed with "[rank 2] " in front.
/// None outlives the object, nor the process.
class RankProcesses {
 public:
  explicit RankProcesses(RankPlan plan);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Throws Error (kEnvironment) when a process can't be started.
  void start();
  bool running() const;
  /// Sends a signal to those that run.
  void send(int signal);
  /// Notes which have ended. True when one has failed.
  bool reap();

  void add_to(std::vector<pollfd>& watched) const;
  /// Prints the lines that have come; `all` also what has no end yet.
  void forward_output(bool all);

  /// "rank 2 has waited 61 s in a collective ..." when one has waited there for longer than it may.
  std::optional<std::string> find_hang() const;
  /// A line for each rank: its phase, and which collective it has reached.
  std::vector<std::string> standing() const;
  /// The gravest of those that have ended.
  Verdict verdict() const;

 private:
  struct Process {
    pid_t pid = -1;
    std::vector<int> sent{};  // signals of ours
    UniqueFd output{};        // the read end of its stdout and stderr; none for rank 0
    std::string partial{};    // a line that has not ended yet
    std::optional<int> status{};
  };

  std::string name(std::size_t index) const;
  std::vector<std::string> environment(int local_rank) const;
  Process start_one(int local_rank) const;
  void forward(std::size_t index, bool all);

  RankPlan plan_;
  Board board_;
  std::vector<Process> processes_;
};

}  // namespace lorikeet::comm
