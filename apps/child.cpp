#include "apps/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/c_strings.h"
#include "base/error.h"
#include "base/file.h"

namespace lorikeet::apps {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{15};
constexpr int kNotStarted = 127;

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const bool replaced = std::any_of(variables.begin(), variables.end(), [&](const auto& variable) {
      return text.starts_with(variable.first + "=");
    });
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

pid_t start(std::vector<std::string> command, std::vector<std::string> environment, int output,
            const comm::SignalQueue& signals) {
  // Everything that allocates comes before fork.
  const std::vector<char*> argv = c_strings(command), env = c_strings(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    throw Error("[bench] can't start '" + command[0] + "': " + std::strerror(errno), ErrorKind::kEnvironment);
  }
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);  // the terminal's Ctrl-C comes to this process alone, which passes it on
  sigprocmask(SIG_SETMASK, &signals.before(), nullptr);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execve(argv[0], argv.data(), env.data());
  _exit(kNotStarted);
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& variables,
                   const std::filesystem::path& log, const comm::SignalQueue& signals) {
  const UniqueFd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!output)
    throw Error("[bench] can't write '" + log.string() + "': " + std::strerror(errno),
                ErrorKind::kEnvironment);
  const pid_t pid = start(command, environment_with(variables), output.get(), signals);

  ChildEnd end;
  std::optional<Clock::time_point> interrupted_at;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    pollfd waiting{signals.fd(), POLLIN, 0};
    ::poll(&waiting, 1, 200);
    for (int number; (number = signals.take()) != 0;) {
      if (number == SIGCHLD) continue;
      if (!interrupted_at) {
        interrupted_at = Clock::now();
        kill(pid, SIGTERM);
      } else if (comm::asks_again(number, Clock::now() - *interrupted_at)) {
        kill(pid, SIGKILL);
      }
    }
    if (interrupted_at && Clock::now() > *interrupted_at + kGrace) kill(pid, SIGKILL);
  }
  end.interrupted = interrupted_at.has_value();
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (end.exit_code == kNotStarted)
    throw Error("[bench] can't start '" + command[0] + "'", ErrorKind::kEnvironment);
  return end;
}

}  // namespace lorikeet::apps
