#pragma once

namespace lorikeet::recipes {

/// While an object of this class lives, SIGINT and SIGTERM only set a flag, so that a run can save and end
/// cleanly; a second signal ends the process at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// True once a signal came.
  static bool requested();
};

}  // namespace lorikeet::recipes
