#include "comm/rank_processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "base/c_strings.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"

namespace lorikeet::comm {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;

[[noreturn]] void fail_to_start(int error) {
  throw Error(std::string("[launch] can't start a process: ") + std::strerror(error),
              ErrorKind::kEnvironment);
}

}  // namespace

int threads_of_each(int processes) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::max(1, cores / processes);
}

RankProcesses::RankProcesses(RankPlan plan) : plan_(std::move(plan)), board_(plan_.processes) {}

RankProcesses::~RankProcesses() {
  send(SIGKILL);
  for (Process& process : processes_) {
    if (!process.status) waitpid(process.pid, nullptr, 0);
  }
}

std::string RankProcesses::name(std::size_t index) const {
  const std::string rank = "rank " + std::to_string(plan_.first_rank + static_cast<int>(index));
  return plan_.nodes == 1 ? rank : "node " + std::to_string(plan_.node) + " " + rank;
}

std::vector<std::string> RankProcesses::environment(int local_rank) const {
  const std::vector<std::pair<std::string, std::string>> own = {
      {"LORIKEET_RANK", std::to_string(plan_.first_rank + local_rank)},
      {"LORIKEET_WORLD_SIZE", std::to_string(plan_.world_size)},
      {"LORIKEET_LOCAL_RANK", std::to_string(local_rank)},
      {"LORIKEET_LOCAL_SIZE", std::to_string(plan_.processes)},
      {"LORIKEET_NODE", std::to_string(plan_.node)},
      {"LORIKEET_NODES", std::to_string(plan_.nodes)},
      {"LORIKEET_RENDEZVOUS", plan_.store},
      {"LORIKEET_LISTEN_FD", std::to_string(plan_.listen_fd)},
      {"LORIKEET_BOARD_FD", std::to_string(board_.descriptor())}};
  std::vector<std::string> all;
  // Nothing of ours is passed on, the launchers' secret least of all.
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LORIKEET_")) all.emplace_back(*entry);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  const auto unless_set = [&](const char* name, const std::string& value) {
    if (std::getenv(name) == nullptr) all.push_back(std::string(name) + "=" + value);
  };
  unless_set("OMP_NUM_THREADS", std::to_string(threads_of_each(plan_.processes)));
  unless_set("GOMP_SPINCOUNT", "1000");
  if (plan_.nodes == 1) unless_set("NCCL_SOCKET_IFNAME", "lo");
  return all;
}

void RankProcesses::start() {
  for (int local = 0; local < plan_.processes; ++local) processes_.push_back(start_one(local));
}

RankProcesses::Process RankProcesses::start_one(int local_rank) const {
  const bool first = plan_.first_rank + local_rank == 0;
  int ends[2] = {-1, -1};
  if (!first && pipe2(ends, O_CLOEXEC) != 0) fail_to_start(errno);
  Process process;
  process.output = UniqueFd(ends[0]);
  const UniqueFd input(ends[1]);
  // Everything that allocates comes before fork.
  std::vector<std::string> arguments{plan_.program.string()};
  arguments.insert(arguments.end(), plan_.arguments.begin(), plan_.arguments.end());
  std::vector<std::string> variables = environment(local_rank);
  const std::vector<char*> argv = c_strings(arguments), env = c_strings(variables);
  const pid_t parent = getpid();
  process.pid = fork();
  if (process.pid < 0) fail_to_start(errno);
  if (process.pid > 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no orphans, however this launcher ends
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);  // the terminal's Ctrl-C goes to the launcher, which passes it on
  sigprocmask(SIG_SETMASK, &plan_.signals, nullptr);
  if (first) {
    fcntl(plan_.listen_fd, F_SETFD, 0);
  } else {
    dup2(input.get(), STDOUT_FILENO);
    dup2(input.get(), STDERR_FILENO);
  }
  execve(argv[0], argv.data(), env.data());
  _exit(127);
}

bool RankProcesses::running() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const Process& p) { return !p.status; });
}

void RankProcesses::send(int signal) {
  reap();  // so that no signal of ours is held against one that had ended before
  for (Process& process : processes_) {
    if (process.status) continue;
    process.sent.push_back(signal);
    kill(process.pid, signal);
    if (signal == SIGKILL) kill(process.pid, SIGCONT);
  }
}

bool RankProcesses::reap() {
  for (Process& process : processes_) {
    int status = 0;
    if (!process.status && waitpid(process.pid, &status, WNOHANG) == process.pid) process.status = status;
  }
  return verdict().blame != Blame::kNone;
}

void RankProcesses::add_to(std::vector<pollfd>& watched) const {
  for (const Process& process : processes_) {
    if (process.output) watched.push_back({process.output.get(), POLLIN, 0});
  }
}

void RankProcesses::forward_output(bool all) {
  for (std::size_t i = 0; i < processes_.size(); ++i) forward(i, all);
}

void RankProcesses::forward(std::size_t index, bool all) {
  Process& process = processes_[index];
  if (!process.output && process.partial.empty()) return;
  std::array<char, 4096> buffer;
  pollfd ready{process.output.get(), POLLIN, 0};
  // A bound a call, so that a rank that prints without end holds nothing up.
  for (int turn = 0; turn < 256 && process.output && ::poll(&ready, 1, 0) == 1; ++turn) {
    const ssize_t count = ::read(process.output.get(), buffer.data(), buffer.size());
    if (count <= 0) {
      process.output = {};
    } else {
      process.partial.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }
  const std::string prefix = "[rank " + std::to_string(plan_.first_rank + static_cast<int>(index)) + "] ";
  std::size_t begin = 0;
  for (std::size_t end; (end = process.partial.find('\n', begin)) != std::string::npos; begin = end + 1) {
    log_info(prefix + process.partial.substr(begin, end - begin));
  }
  process.partial.erase(0, begin);
  if (!process.partial.empty() && (all || process.partial.size() > kLongestLine)) {
    log_info(prefix + process.partial);
    process.partial.clear();
  }
}

std::optional<std::string> RankProcesses::find_hang() const {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const BoardSlot slot = board_.read(static_cast<int>(i));
    if (processes_[i].status || slot.in_collective == 0 || slot.limit_seconds == 0) continue;
    const double waited = static_cast<double>(time.tv_sec) - static_cast<double>(slot.since_ns) / 1e9;
    if (waited <= static_cast<double>(slot.limit_seconds)) continue;
    return name(i) + " has waited " + std::to_string(static_cast<int>(waited)) +
           " s in a collective (distributed.watchdog_seconds)";
  }
  return std::nullopt;
}

std::vector<std::string> RankProcesses::standing() const {
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const BoardSlot slot = board_.read(static_cast<int>(i));
    const std::string reached = slot.sequence == 0
                                    ? "before the first collective"
                                    : std::string(slot.in_collective != 0 ? "in " : "behind ") +
                                          name_of(static_cast<Collective>(slot.collective)) + " " +
                                          std::to_string(slot.sequence);
    rows.push_back(name(i) + ": " + escape_control(slot.phase) + ", " + reached);
  }
  return rows;
}

Verdict RankProcesses::verdict() const {
  Verdict worst;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    if (!process.status) continue;
    const int status = *process.status;
    const bool ours =
        WIFSIGNALED(status) && std::count(process.sent.begin(), process.sent.end(), WTERMSIG(status)) > 0;
    worst = graver(worst, judge_rank(name(i), status, ours, board_.read(static_cast<int>(i))));
  }
  return worst;
}

}  // namespace lorikeet::comm
