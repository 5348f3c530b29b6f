#include "recipes/interrupt.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "comm/signal_queue.h"
#include "io/folders.h"

// The handler does all of its work itself rather than set a flag that the phases before the loop would poll:
// they spend minutes in libraries (NCCL, the tokenizer, reading weights) that poll nothing. So it may call
// async-signal-safe functions only (signal-safety(7)): write, access, unlink, rmdir, clock_gettime and _exit
// are; nothing in it allocates, and what it needs was copied to static memory before.
namespace lorikeet::recipes {
namespace {

enum class State {
  kDefault,    // no handler of ours
  kStarting,   // InterruptExit, before the loop
  kLoop,       // InterruptGuard
  kFinishing,  // InterruptGuard, after the loop
  kStopping,   // InterruptGuard, after the first signal
  kEnding,     // InterruptExit, behind the guard
  kStopped,    // behind both, after a run that was asked to end: libraries take their time to unload
};

std::atomic<State> g_state{State::kDefault};
static_assert(std::atomic<State>::is_always_lock_free);
std::atomic<bool> g_takes_back{false};          // the guard is over InterruptedWork::kTakeBack
std::atomic<bool> g_ends_interrupted{false};    // fail_interrupted was called
std::atomic<std::int64_t> g_stopping_since{0};  // of monotonic_nanoseconds
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// InterruptExit's: whether there is one, and what it knows of the output folder.
std::atomic<bool> g_exits{false};
std::atomic<bool> g_silent{false};
std::atomic<bool> g_by_signal{false};
std::atomic<bool> g_knows_folder{false};
std::array<char, PATH_MAX> g_folder;  // absolute, without a '/' at its end
std::size_t g_present = 0;            // so many bytes of g_folder name a folder that was there before
std::atomic<bool> g_lock_is_ours{false};

constexpr std::string_view kRun = "run.json";

std::int64_t monotonic_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void say(std::string_view text) {
  if (g_silent) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

// A file in g_folder, or with no name that folder.
struct FilePath {
  std::array<char, PATH_MAX + 32> text;

  explicit FilePath(std::string_view name) : text() {
    const std::size_t length = std::strlen(g_folder.data());
    std::memcpy(text.data(), g_folder.data(), length);
    if (name.empty()) return;
    text[length] = '/';
    std::memcpy(text.data() + length + 1, name.data(), name.size());
  }
};

bool holds_run() { return ::access(FilePath(kRun).text.data(), F_OK) == 0; }

// What RunFolder's destructor does for a run that wasn't begun. Should the interrupted thread be about to
// make the folder, it stays, empty.
void remove_folder() {
  if (g_lock_is_ours) ::unlink(FilePath(io::kLockFile).text.data());
  FilePath folder("");
  for (std::size_t length = std::strlen(folder.text.data()); length > g_present; --length) {
    if (folder.text[length] != '\0' && folder.text[length] != '/') continue;
    folder.text[length] = '\0';
    if (::rmdir(folder.text.data()) != 0 && errno != ENOENT) return;
  }
}

void end(int number, std::string_view message) {
  say(message);
  if (!g_by_signal) ::_exit(static_cast<int>(ErrorKind::kInterrupted));
  std::signal(number, SIG_DFL);
  std::raise(number);  // held back until the handler returns
}

void end_before_loop(int number) {
  if (g_knows_folder && holds_run())
    return end(number,
               "error: interrupted before the first step; the run in the output folder stays as it was\n");
  if (g_knows_folder) remove_folder();
  end(number, "error: interrupted before the first step; nothing was written to the output folder\n");
}

void begin_stopping() {
  g_stopping_since = monotonic_nanoseconds();
  g_state = State::kStopping;
}

void on_signal(int number) {
  switch (g_state.load()) {
    case State::kStarting: return end_before_loop(number);
    case State::kLoop:
      begin_stopping();
      return say(
          g_takes_back
              ? "interrupted: what was begun is removed; a second signal, later, ends the program at "
                "once and leaves it\n"
              : "interrupted: the run saves behind this step and ends; a second signal, later, ends it "
                "at once\n");
    case State::kFinishing:
      begin_stopping();
      return say(
          "interrupted: the run writes its result and ends; a second signal, later, ends it at once\n");
    case State::kStopping:
      if (!comm::asks_again(number, std::chrono::nanoseconds(monotonic_nanoseconds() - g_stopping_since)))
        return;
      return end(number, g_takes_back
                             ? "error: interrupted again, and ended before what was begun was removed; "
                               "the same command removes it\n"
                             : "error: interrupted again, and ended without saving; checkpoints that "
                               "were saved stay\n");
    case State::kEnding:
      return end(number, "error: interrupted while the run was ending; what was saved stays\n");
    case State::kStopped: return end(number, "");
    case State::kDefault: std::signal(number, SIG_DFL); std::raise(number);
  }
}

void handle(void (*handler)(int)) {
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
  // The terminal was closed, or the connection lost; nohup has it ignored.
  struct sigaction action {};
  if (::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
    std::signal(SIGHUP, handler);
}

}  // namespace

InterruptExit::InterruptExit() {
  g_exits = true;
  g_silent = false;
  g_by_signal = false;
  g_ends_interrupted = false;
  g_knows_folder = false;
  g_state = State::kStarting;
  handle(on_signal);
}

InterruptExit::~InterruptExit() {
  g_exits = false;
  if (g_ends_interrupted) {
    g_state = State::kStopped;
    return;
  }
  handle(SIG_DFL);
  g_state = State::kDefault;
}

void InterruptExit::leave_no_trace_in(const std::filesystem::path& output_dir) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(output_dir, ignored).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "a/b/" is "a/b"
  const std::string text = folder.string();
  if (ignored || text.empty() || text.size() >= g_folder.size()) return;
  std::memcpy(g_folder.data(), text.c_str(), text.size() + 1);
  while (folder != folder.root_path() && !std::filesystem::exists(folder, ignored))
    folder = folder.parent_path();
  g_present = folder.string().size();
  g_knows_folder = true;
}

void InterruptExit::lock_is_ours(bool ours) { g_lock_is_ours = ours; }

void InterruptExit::be_silent() { g_silent = true; }

void InterruptExit::end_by_signal() {
  g_silent = true;
  g_by_signal = true;
}

InterruptGuard::InterruptGuard(InterruptedWork work) {
  g_takes_back = work == InterruptedWork::kTakeBack;
  g_state = State::kLoop;
  handle(on_signal);
}

InterruptGuard::~InterruptGuard() {
  if (g_exits) {
    if (g_state != State::kStopping) g_state = State::kEnding;
  } else {
    handle(SIG_DFL);
    g_state = State::kDefault;
  }
}

void InterruptGuard::finishing() {
  State loop = State::kLoop;
  g_state.compare_exchange_strong(loop, State::kFinishing);
}

void InterruptGuard::stop_if_requested() {
  if (requested()) throw Error("interrupted", ErrorKind::kInterrupted);
}

bool InterruptGuard::exists() {
  const State state = g_state;
  return state == State::kLoop || state == State::kFinishing || state == State::kStopping;
}

bool InterruptGuard::requested() { return g_state == State::kStopping; }

void fail_interrupted(const std::string& when) {
  if (g_state != State::kStopping) begin_stopping();
  g_ends_interrupted = true;
  throw Error("interrupted " + when, ErrorKind::kInterrupted);
}

}  // namespace lorikeet::recipes
