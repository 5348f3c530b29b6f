#pragma once

#include <filesystem>
#include <string>

namespace lorikeet::recipes {

/// While an object of this class lives, SIGINT, SIGTERM and SIGHUP end the process at once with exit code 130
/// and one line on stderr, unless an InterruptGuard takes them. Made first in a training program's `main`:
/// opening a model, tokenising or waiting for other processes may take minutes, and holds nothing worth
/// saving. At most one at a time. Behind it the same holds, without the line, where fail_interrupted has
/// ended the run: the process is about to exit with that code.
class InterruptExit {
 public:
  InterruptExit();
  ~InterruptExit();
  InterruptExit(const InterruptExit&) = delete;
  InterruptExit& operator=(const InterruptExit&) = delete;

  /// To be called before the run's output folder is made. A signal that comes while the folder holds no run
  /// takes away its lock, if this process holds it, and, as far as they are empty, the folders that weren't
  /// there yet.
  static void leave_no_trace_in(const std::filesystem::path& output_dir);

  /// To be called when this process has the lock in that folder, and before it gives it up.
  static void lock_is_ours(bool ours);

  /// The line is another process's to write.
  static void be_silent();

  /// The process ends by the signal itself, and silently: its launcher tells by that who was ended by whom,
  /// brings the others down, and exits with the code.
  static void end_by_signal();
};

/// What a signal interrupts, and so what it makes an InterruptGuard say on stderr.
enum class InterruptedWork {
  kRun,      ///< a training run, which saves what was done
  kTakeBack  ///< what stop_if_requested ends, and takes back the files that it began
};

/// While an object of this class lives, SIGINT, SIGTERM and SIGHUP only set a flag, so that a run can save,
/// or write its result, and end cleanly; one that asks again (comm::asks_again) ends the process at once, as
/// InterruptExit says. That stays so behind the guard of a run that was asked to end. At most one at a time.
class InterruptGuard {
 public:
  explicit InterruptGuard(InterruptedWork work = InterruptedWork::kRun);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// From here on the run writes its result: what a signal makes it say on stderr.
  static void finishing();

  /// Whether there is one.
  static bool exists();

  /// True once a signal came.
  static bool requested();

  /// Throws Error (kInterrupted) once a signal came: for long work that takes back what it began.
  static void stop_if_requested();
};

/// Ends a run that was asked to end and has saved what was done, by the Error (kInterrupted) "interrupted
/// <when>". From now on the process counts as asked, also where another one was.
[[noreturn]] void fail_interrupted(const std::string& when);

}  // namespace lorikeet::recipes
