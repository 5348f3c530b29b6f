#include "comm/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strings.h"
#include "comm/board.h"
#include "comm/socket.h"

namespace lorikeet::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kLoopback = "127.0.0.1";
constexpr int kInterrupted = 130;

struct Child {
  pid_t pid = -1;
  bool ended_by_us = false;  // a signal of ours came before its end
  UniqueFd output;           // the read end of its stdout and stderr; none for rank 0
  std::string partial;       // a line that has not ended yet
  std::optional<int> status;
};

std::string describe(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const bool memory = number == SIGKILL;
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")" +
           (memory ? ", as the kernel does when memory runs out" : "");
  }
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

// Signals that this process takes from a descriptor while the object lives.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&mask, number);
    sigprocmask(SIG_BLOCK, &mask, &before_);
    fd_ = UniqueFd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw Error(std::string("[launch] signalfd: ") + std::strerror(errno), ErrorKind::kEnvironment);
  }
  ~SignalQueue() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& before() const { return before_; }
  /// The next signal's number, or 0.
  int take() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options), board_(options.processes), listener_(listen_on(kLoopback, 0)) {}

  ~Launch() { send(SIGKILL); }

  int run() {
    for (int rank = 0; rank < options_.processes; ++rank) children_.push_back(start(rank));
    listener_ = {};  // rank 0 holds it now
    while (running() > 0) {
      wait_for_something();
      take_signals();
      reap();
      watch();
      if (deadline_ && Clock::now() > *deadline_) {
        send(SIGKILL);
        deadline_.reset();
      }
    }
    for (Child& child : children_) forward(child, true);
    return verdict();
  }

 private:
  std::vector<std::string> environment(int rank) const {
    const std::vector<std::pair<std::string, std::string>> own = {
        {"LORIKEET_RANK", std::to_string(rank)},
        {"LORIKEET_WORLD_SIZE", std::to_string(options_.processes)},
        {"LORIKEET_LOCAL_RANK", std::to_string(rank)},
        {"LORIKEET_LOCAL_SIZE", std::to_string(options_.processes)},
        {"LORIKEET_NODE", "0"},
        {"LORIKEET_NODES", "1"},
        {"LORIKEET_RENDEZVOUS", std::string(kLoopback) + ":" + std::to_string(listener_.port)},
        {"LORIKEET_LISTEN_FD", std::to_string(listener_.fd.get())},
        {"LORIKEET_BOARD_FD", std::to_string(board_.descriptor())}};
    std::vector<std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!std::string_view(*entry).starts_with("LORIKEET_")) all.emplace_back(*entry);
    }
    for (const auto& [name, value] : own) all.push_back(name + "=" + value);
    const auto unless_set = [&](const char* name, const std::string& value) {
      if (std::getenv(name) == nullptr) all.push_back(std::string(name) + "=" + value);
    };
    // Ranks that take all cores each, and spin there, get in each other's way.
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    unless_set("OMP_NUM_THREADS",
               std::to_string(std::max(1U, cores / static_cast<unsigned>(options_.processes))));
    unless_set("GOMP_SPINCOUNT", "1000");
    unless_set("NCCL_SOCKET_IFNAME", "lo");
    return all;
  }

  Child start(int rank) {
    int ends[2] = {-1, -1};
    if (rank > 0 && pipe2(ends, O_CLOEXEC) != 0) fail_to_start(errno);
    Child child;
    child.output = UniqueFd(ends[0]);
    const UniqueFd input(ends[1]);
    // Everything that allocates comes before fork.
    std::vector<std::string> arguments{options_.program.string()};
    arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
    std::vector<std::string> variables = environment(rank);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> out;
      for (std::string& text : texts) out.push_back(text.data());
      out.push_back(nullptr);
      return out;
    };
    const std::vector<char*> argv = pointers(arguments), env = pointers(variables);
    const pid_t parent = getpid();
    child.pid = fork();
    if (child.pid < 0) fail_to_start(errno);
    if (child.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // no orphans, however this launcher ends
      if (getppid() != parent) _exit(1);
      setpgid(0, 0);  // the terminal's Ctrl-C goes to the launcher, which passes it on
      sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
      if (rank > 0) {
        dup2(input.get(), STDOUT_FILENO);
        dup2(input.get(), STDERR_FILENO);
      } else {
        fcntl(listener_.fd.get(), F_SETFD, 0);
      }
      execve(argv[0], argv.data(), env.data());
      _exit(127);
    }
    return child;
  }

  [[noreturn]] static void fail_to_start(int error) {
    throw Error(std::string("[launch] can't start a process: ") + std::strerror(error),
                ErrorKind::kEnvironment);
  }

  std::ptrdiff_t running() const {
    return std::count_if(children_.begin(), children_.end(), [](const Child& c) { return !c.status; });
  }

  void send(int number) {
    for (Child& child : children_) {
      if (!child.status && child.pid > 0) {
        child.ended_by_us = true;
        kill(child.pid, number);
        if (number == SIGKILL) kill(child.pid, SIGCONT);
      }
    }
  }

  void wait_for_something() {
    constexpr int kMilliseconds = 200;
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    for (const Child& child : children_) {
      if (child.output) watched.push_back({child.output.get(), POLLIN, 0});
    }
    ::poll(watched.data(), watched.size(), kMilliseconds);
    for (Child& child : children_) forward(child, false);
  }

  // Passes on what a rank has printed, line by line.
  void forward(Child& child, bool last) {
    if (!child.output) return;
    pollfd ready{child.output.get(), POLLIN, 0};
    char buffer[4096];
    while (::poll(&ready, 1, 0) == 1) {
      const ssize_t count = ::read(child.output.get(), buffer, sizeof(buffer));
      if (count <= 0) {
        child.output = {};
        break;
      }
      child.partial.append(buffer, static_cast<std::size_t>(count));
    }
    const std::string name = "[rank " + std::to_string(&child - children_.data()) + "] ";
    for (std::size_t end; (end = child.partial.find('\n')) != std::string::npos;
         child.partial.erase(0, end + 1)) {
      log_info(name + child.partial.substr(0, end));
    }
    constexpr std::size_t kLongestLine = 1 << 16;
    if (!child.partial.empty() && (last || child.partial.size() > kLongestLine)) {
      log_info(name + child.partial);
      child.partial.clear();
    }
  }

  void take_signals() {
    for (int number; (number = signals_.take()) != 0;) {
      if (number == SIGCHLD) continue;
      if (interrupted_) {
        send(SIGKILL);
      } else {
        send(number == SIGHUP ? SIGTERM : number);
        log_info("interrupted: the ranks save and end; once more ends them at once");
      }
      interrupted_ = true;
    }
  }

  void reap() {
    bool failed = false;
    for (Child& child : children_) {
      int status = 0;
      if (child.status || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.status = status;
      const bool good =
          WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kInterrupted);
      failed = failed || !good;
    }
    if (failed) bring_down();
  }

  // The others get a moment to see for themselves and say so.
  void bring_down() {
    if (down_) return;
    down_ = true;
    send(SIGTERM);
    deadline_ = Clock::now() + std::chrono::milliseconds(static_cast<int>(options_.grace_seconds * 1000));
  }

  // Looks for a rank that waits in a collective for longer than it may.
  void watch() {
    if (down_) return;
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    for (int rank = 0; rank < options_.processes; ++rank) {
      const BoardSlot slot = board_.read(rank);
      if (children_[static_cast<std::size_t>(rank)].status || slot.in_collective == 0 ||
          slot.limit_seconds == 0)
        continue;
      const double waited = static_cast<double>(time.tv_sec) - static_cast<double>(slot.since_ns) / 1e9;
      if (waited <= static_cast<double>(slot.limit_seconds)) continue;
      log_error("[launch] rank " + std::to_string(rank) + " has waited " +
                std::to_string(static_cast<int>(waited)) +
                " s in a collective (distributed.watchdog_seconds); " + "the ranks stand here:\n" + table());
      hung_ = true;
      bring_down();
      send(SIGKILL);
      return;
    }
  }

  std::string table() const {
    std::string out;
    for (int rank = 0; rank < options_.processes; ++rank) {
      const BoardSlot slot = board_.read(rank);
      out += "  rank " + std::to_string(rank) + ": " + escape_control(slot.phase) + ", " +
             (slot.sequence == 0 ? std::string("before the first collective")
                                 : std::string(slot.in_collective != 0 ? "in " : "behind ") +
                                       name_of(static_cast<Collective>(slot.collective)) + " " +
                                       std::to_string(slot.sequence)) +
             "\n";
    }
    return out;
  }

  bool any_interrupted() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& c) {
      return WIFEXITED(*c.status) && WEXITSTATUS(*c.status) == kInterrupted;
    });
  }

  // Whose failure came first: a rank that was killed from outside, one with an error of its own, then the
  // rest.
  int verdict() const {
    std::optional<int> blamed;
    int best = 4;
    for (int rank = 0; rank < options_.processes; ++rank) {
      const int status = *children_[static_cast<std::size_t>(rank)].status;
      const BoardSlot slot = board_.read(rank);
      const bool ended = WIFEXITED(status);
      if (ended && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kInterrupted)) continue;
      const bool told = slot.error[0] != '\0';
      int order = 3;
      if (told && slot.consequence == 0) order = ended ? 1 : 2;
      if (ended && !told) order = 1;
      if (!ended && !children_[static_cast<std::size_t>(rank)].ended_by_us) order = 0;
      if (order < best) {
        best = order;
        blamed = rank;
      }
    }
    if (!blamed) return any_interrupted() ? kInterrupted : 0;
    if (interrupted_ && best == 3) return kInterrupted;  // a signal passed on before the rank could save
    if (hung_) return 1;
    const int status = *children_[static_cast<std::size_t>(*blamed)].status;
    const BoardSlot slot = board_.read(*blamed);
    std::string phase = escape_control(slot.phase);
    log_error("[launch] rank " + std::to_string(*blamed) + " " + describe(status) +
              (phase.empty() ? std::string() : " in phase '" + phase + "'") +
              (slot.error[0] != '\0' ? ": " + escape_control(slot.error) : std::string()) +
              "; the other ranks were ended");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }

  const LaunchOptions& options_;
  Board board_;
  Listener listener_;
  SignalQueue signals_;
  std::vector<Child> children_;
  std::optional<Clock::time_point> deadline_;
  bool interrupted_ = false;
  bool down_ = false;
  bool hung_ = false;
};

}  // namespace

int launch(const LaunchOptions& options) { return Launch(options).run(); }

}  // namespace lorikeet::comm
