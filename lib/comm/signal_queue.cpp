#include "comm/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "base/error.h"

namespace lorikeet::comm {

SignalQueue::SignalQueue() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    // What nohup, or a shell for its background jobs, has set to be ignored stays ignored: a descriptor would
    // get it all the same.
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    sigaddset(&mask, number);
  }
  sigprocmask(SIG_BLOCK, &mask, &before_);
  fd_ = UniqueFd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw Error(std::string("[launch] signalfd: ") + std::strerror(errno), ErrorKind::kEnvironment);
}

SignalQueue::~SignalQueue() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

int SignalQueue::take() const {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace lorikeet::comm
