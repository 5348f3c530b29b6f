#pragma once

#include <csignal>

#include "base/file.h"

namespace lorikeet::comm {

/// Takes SIGCHLD, SIGINT, SIGTERM and SIGHUP of this process from a descriptor while the object lives, so
/// that an event loop sees them among its other events.
class SignalQueue {
 public:
  /// Throws Error (kEnvironment).
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable when a signal waits.
  int fd() const { return fd_.get(); }
  /// The mask that held before, for children.
  const sigset_t& before() const { return before_; }
  /// The next signal's number, or 0.
  int take() const;

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

}  // namespace lorikeet::comm
