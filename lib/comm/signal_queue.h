#pragma once

#include <csignal>

#include "base/file.h"

namespace lorikeet::comm {

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
