#pragma once

#include <chrono>
#include <csignal>

#include "base/file.h"

namespace lorikeet::comm {

/// Whether signal `number` asks once more for the end that an earlier one asked for, `since_first` before: to
/// end at once, without saving. One request may come as several signals (a terminal that closes sends SIGHUP
/// by its shell and by the kernel, a service manager SIGTERM and SIGHUP, timeout and tini to the process and
/// to its group), so SIGHUP never does, and others do a second after the first.
constexpr bool asks_again(int number, std::chrono::nanoseconds since_first) {
  return number != SIGHUP && since_first >= std::chrono::seconds(1);
}

/// Delivers SIGCHLD, SIGINT, SIGTERM and SIGHUP of this process through a descriptor while the object lives,
/// so that an event loop can poll for them.
class SignalQueue {
 public:
  /// Throws Error (kEnvironment).
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable when a signal is pending.
  int fd() const { return fd_.get(); }
  /// The signal mask from before this object, for child processes.
  const sigset_t& before() const { return before_; }
  /// The next signal's number, or 0.
  int take() const;

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

}  // namespace lorikeet::comm
