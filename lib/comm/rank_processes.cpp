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

std::vector<std::string> RankProcesses::environment(int rank) const {
  const std::vector<std::pair<std::string, std::string>> own = {
      {"LORIKEET_RANK", std::to_string(rank)},
      {"LORIKEET_WORLD_SIZE", std::to_string(plan_.processes)},
      {"LORIKEET_STORE_PORT", std::to_string(plan_.store_port)},
      {"LORIKEET_LISTEN_FD", std::to_string(plan_.listen_fd)},
      {"LORIKEET_BOARD_FD", std::to_string(board_.descriptor())}};
  std::vector<std::string> all;
  // A rank that starts a launcher itself must not pass its own variables on.
  const auto is_own = [&](std::string_view entry) {
    return std::any_of(own.begin(), own.end(),
                       [&](const auto& variable) { return entry.starts_with(variable.first + "="); });
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_own(*entry)) all.emplace_back(*entry);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  const auto unless_set = [&](const char* name, const std::string& value) {
    if (std::getenv(name) == nullptr) all.push_back(std::string(name) + "=" + value);
  };
  unless_set("OMP_NUM_THREADS", std::to_string(threads_of_each(plan_.processes)));
  unless_set("GOMP_SPINCOUNT", "1000");
  unless_set("NCCL_SOCKET_IFNAME", "lo");
  return all;
}

void RankProcesses::start() {
  for (int rank = 0; rank < plan_.processes; ++rank) processes_.push_back(start_one(rank));
}

RankProcesses::Process RankProcesses::start_one(int rank) const {
  const bool first = rank == 0;
  int ends[2] = {-1, -1};
  if (!first && pipe2(ends, O_CLOEXEC) != 0) fail_to_start(errno);
  Process process;
  process.output = UniqueFd(ends[0]);
  const UniqueFd input(ends[1]);
  // Everything that allocates comes before fork.
  std::vector<std::string> arguments{plan_.program.string()};
  arguments.insert(arguments.end(), plan_.arguments.begin(), plan_.arguments.end());
  std::vector<std::string> variables = environment(rank);
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
  reap();  // a rank that had ended before was not ended by this signal
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
  return verdict().cause != Cause::kNone;
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
  // Bounded, so that a rank that prints without end does not block the event loop.
  for (int reads = 0; reads < 256 && process.output && ::poll(&ready, 1, 0) == 1; ++reads) {
    const ssize_t count = ::read(process.output.get(), buffer.data(), buffer.size());
    if (count <= 0) {
      process.output = {};
    } else {
      process.partial.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }
  const std::string prefix = "[rank " + std::to_string(index) + "] ";
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
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].status) continue;
    const BoardSlot slot = board_.read(static_cast<int>(i));
    if (const auto seconds = overdue_seconds(slot))
      return hang_text("rank " + std::to_string(i), slot, *seconds);
  }
  return std::nullopt;
}

std::vector<std::string> RankProcesses::standing() const {
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    rows.push_back("rank " + std::to_string(i) + ": " + describe(board_.read(static_cast<int>(i))));
  }
  return rows;
}

Verdict RankProcesses::verdict() const {
  Verdict first;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    if (!process.status) continue;
    const int status = *process.status;
    const bool ours =
        WIFSIGNALED(status) && std::count(process.sent.begin(), process.sent.end(), WTERMSIG(status)) > 0;
    first = earlier(first,
                    judge_rank("rank " + std::to_string(i), status, ours, board_.read(static_cast<int>(i))));
  }
  return first;
}

}  // namespace lorikeet::comm
