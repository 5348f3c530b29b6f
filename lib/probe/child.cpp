#include "probe/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "base/c_strings.h"
#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"

namespace lorikeet::probe {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kMostOutput = std::size_t{1} << 20, kMostErrors = 4096;
constexpr int kPollMilliseconds = 20;
// That a killed process needs to go. One inside of a system call that can't be interrupted may never.
constexpr double kReapSeconds = 2;

struct Pipe {
  UniqueFd read, write;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(std::string("[probe] can't make a pipe: ") + std::strerror(errno), ErrorKind::kEnvironment);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

class Child {
 public:
  explicit Child(const ChildCommand& command) {
    Pipe output = make_pipe(), errors = make_pipe();
    // Everything that allocates comes before fork.
    std::vector<std::string> texts{command.program.string()};
    texts.insert(texts.end(), command.arguments.begin(), command.arguments.end());
    const std::vector<char*> arguments = c_strings(texts);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0)
      throw Error(std::string("[probe] can't start a process: ") + std::strerror(errno),
                  ErrorKind::kEnvironment);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::setpgid(0, 0);
      ::dup2(output.write.get(), STDOUT_FILENO);
      ::dup2(errors.write.get(), STDERR_FILENO);
      if (command.inherited_fd >= 0) ::fcntl(command.inherited_fd, F_SETFD, 0);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::setpgid(pid_, pid_);  // whoever of the two comes first
    output_ = std::move(output.read);
    errors_ = std::move(errors.read);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool running() const { return !status_; }
  bool failed() const { return status_ && *status_ != 0; }

  void add_to(std::vector<pollfd>& watched) const {
    if (output_) watched.push_back({output_.get(), POLLIN, 0});
    if (errors_) watched.push_back({errors_.get(), POLLIN, 0});
  }

  /// Takes what was printed, and notes whether it has ended.
  void attend() {
    int status = 0;
    if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = status;
      ::kill(-pid_, SIGKILL);  // what it has left behind
    }
    take(output_, result_.output);
    keep_end(result_.output, kMostOutput);
    take(errors_, result_.errors);
    keep_end(result_.errors, kMostErrors);
  }

  void stop(ChildResult::End why) {
    attend();
    if (status_) return;
    stopped_ = why;
    kill();
  }

  ChildResult result() const {
    ChildResult result = result_;
    if (stopped_) {
      result.end = *stopped_;
      result.code = SIGKILL;
    } else if (status_ && WIFSIGNALED(*status_)) {
      result.end = ChildResult::End::kSignalled;
      result.code = WTERMSIG(*status_);
    } else if (status_) {
      result.code = WEXITSTATUS(*status_);
    }
    return result;
  }

 private:
  void kill() {
    if (status_) return;
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    const auto deadline = Clock::now() + Seconds(kReapSeconds);
    while (!status_ && Clock::now() < deadline) {
      attend();
      if (!status_) ::poll(nullptr, 0, kPollMilliseconds);
    }
  }

  static void keep_end(std::string& text, std::size_t most) {
    if (text.size() > most) text.erase(0, text.size() - most);
  }

  static void take(UniqueFd& from, std::string& to) {
    std::array<char, 4096> buffer;
    pollfd ready{from.get(), POLLIN, 0};
    // A bound a call, so that a child that prints without end holds nothing up.
    for (int turn = 0; turn < 256 && from && ::poll(&ready, 1, 0) == 1; ++turn) {
      const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
      if (count <= 0) {
        from = {};
      } else {
        to.append(buffer.data(), static_cast<std::size_t>(count));
      }
    }
  }

  pid_t pid_ = -1;
  UniqueFd output_, errors_;
  std::optional<int> status_;
  std::optional<ChildResult::End> stopped_;
  ChildResult result_;
};

std::string last_line(const std::string& text) {
  const std::string trimmed = trim(text);
  return trimmed.substr(trimmed.find_last_of('\n') + 1);
}

}  // namespace

std::string ChildResult::trouble(double limit_seconds) const {
  if (succeeded()) return "";
  std::string words = last_line(errors);
  if (words.starts_with("error: ")) words.erase(0, std::strlen("error: "));
  const std::string limit = format_number("%g", limit_seconds);
  switch (end) {
    case End::kExited:
      return "ended with exit code " + std::to_string(code) + (words.empty() ? "" : ": " + words);
    case End::kSignalled:
      return "was killed by signal " + std::to_string(code) + " (" + ::strsignal(code) + ")" +
             (words.empty() ? "" : "; its last words: " + words);
    case End::kTimedOut:
      return std::string("did not end within ") + limit + " s" +
             (words.empty() ? "" : "; its last words: " + words);
    case End::kStopped: return "was stopped because another one had failed";
  }
  return "";
}

std::vector<ChildResult> run_children(const std::vector<ChildCommand>& commands, double limit_seconds) {
  const auto deadline = Clock::now() + Seconds(limit_seconds);
  std::vector<std::unique_ptr<Child>> children;
  children.reserve(commands.size());
  for (const ChildCommand& command : commands) children.push_back(std::make_unique<Child>(command));
  const auto any = [&](bool (Child::*what)() const) {
    return std::any_of(children.begin(), children.end(),
                       [&](const auto& child) { return (child.get()->*what)(); });
  };
  while (any(&Child::running)) {
    std::vector<pollfd> watched;
    for (const auto& child : children) child->add_to(watched);
    ::poll(watched.data(), watched.size(), kPollMilliseconds);
    for (const auto& child : children) child->attend();
    const bool time_is_up = Clock::now() >= deadline;
    if (!time_is_up && !any(&Child::failed)) continue;
    for (const auto& child : children)
      child->stop(time_is_up ? ChildResult::End::kTimedOut : ChildResult::End::kStopped);
    break;
  }
  std::vector<ChildResult> results;
  results.reserve(children.size());
  for (const auto& child : children) {
    child->attend();
    results.push_back(child->result());
  }
  return results;
}

}  // namespace lorikeet::probe
