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

/// What the ranks are started with.
struct RankPlan {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  int processes = 1;
  int store_port = 0;  ///< of the loopback address
  int listen_fd = -1;  ///< the socket that listens on it, for rank 0
  sigset_t signals{};  ///< the signal mask that they run with
};

/// OMP_NUM_THREADS for each of `processes` ranks, unless the user has set it: this machine's cores divided
/// among them. Ranks that use all cores each slow each other down at every OpenMP barrier.
int threads_of_each(int processes);

/// The processes of all ranks: their output, their state on the board, and how they ended. Rank 0 keeps this
/// process's stdout and stderr; the other ranks' lines are printed with "[rank 2] " in front. No rank
/// outlives this object or this process.
class RankProcesses {
 public:
  explicit RankProcesses(RankPlan plan);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Throws Error (kEnvironment) when a process can't be started.
  void start();
  bool running() const;
  /// Sends a signal to the ranks that run.
  void send(int signal);
  /// Notes which ranks have ended. True when one of them has failed.
  bool reap();

  /// Adds the ranks' output pipes to what poll(2) waits for.
  void add_to(std::vector<pollfd>& watched) const;
  /// Prints the lines that have arrived; with `all` also an unfinished last line.
  void forward_output(bool all);

  /// "rank 2 has waited 61 s in a collective ..." when a rank has waited there for longer than it may.
  std::optional<std::string> find_hang() const;
  /// One line a rank: its phase, and which collective it has reached.
  std::vector<std::string> standing() const;
  /// The verdict on the ranks that have ended: that of the failure which came first.
  Verdict verdict() const;

 private:
  struct Process {
    pid_t pid = -1;
    std::vector<int> sent{};      // signals that send() has sent it
    UniqueFd output{};            // the read end of its stdout and stderr; none for rank 0
    std::string partial{};        // an unfinished line
    std::optional<int> status{};  // waitpid's, once it has ended
  };

  std::vector<std::string> environment(int rank) const;
  Process start_one(int rank) const;
  void forward(std::size_t index, bool all);

  RankPlan plan_;
  Board board_;
  std::vector<Process> processes_;
};

}  // namespace lorikeet::comm
