#include "comm/launcher.h"

#include <poll.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "comm/rank_processes.h"
#include "comm/signal_queue.h"
#include "comm/socket.h"

namespace lorikeet::comm {
namespace {

using Clock = std::chrono::steady_clock;

// The event loop.
class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options), store_(listen_on("127.0.0.1", 0)), ranks_(plan()) {}

  int run() {
    ranks_.start();
    store_ = {};  // rank 0 holds the socket now
    while (ranks_.running()) {
      wait_for_something();
      take_signals();
      if (ranks_.reap()) bring_down();
      find_hang();
      if (kill_at_ && Clock::now() > *kill_at_) {
        ranks_.send(SIGKILL);
        kill_at_.reset();
      }
    }
    return conclusion();
  }

 private:
  RankPlan plan() const {
    return {.program = options_.program,
            .arguments = options_.arguments,
            .processes = options_.processes,
            .store_port = store_.port,
            .listen_fd = store_.fd.get(),
            .signals = signals_.before()};
  }

  void wait_for_something() {
    constexpr int kMilliseconds = 200;
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    ranks_.add_to(watched);
    ::poll(watched.data(), watched.size(), kMilliseconds);
    ranks_.forward_output(false);
  }

  void take_signals() {
    for (int number; (number = signals_.take()) != 0;) {
      if (number == SIGCHLD) continue;
      if (!interrupted_at_) {
        interrupted_at_ = Clock::now();
        log_info("interrupted: the ranks save and end; once more, a second later, ends them at once");
        ranks_.send(SIGTERM);
      } else if (asks_again(number, Clock::now() - *interrupted_at_)) {
        ranks_.send(SIGKILL);
      }
    }
  }

  // The other ranks get a moment to notice the failure themselves and to report it.
  void bring_down() {
    if (std::exchange(down_, true)) return;
    if (!interrupted_at_)
      ranks_.send(SIGTERM);  // a second one would cut short what the first makes them save
    kill_at_ = Clock::now() + std::chrono::milliseconds(static_cast<int>(options_.grace_seconds * 1000));
  }

  // Ends the run when a rank waits in a collective for longer than it may.
  void find_hang() {
    if (down_) return;
    const auto hang = ranks_.find_hang();
    // Only when seen twice: the board may be read while its rank writes.
    const bool before = std::exchange(suspected_, hang.has_value());
    if (!hang || !before) return;
    std::string table = "[launch] " + *hang + "; the ranks stand here:\n";
    for (const std::string& row : ranks_.standing()) table += "  " + row + "\n";
    log_error(table);
    hung_ = true;
    down_ = true;
    ranks_.send(SIGKILL);
  }

  int conclusion() {
    ranks_.forward_output(true);
    if (hung_) return 1;
    const Verdict verdict = conclude(ranks_.verdict(), interrupted_at_.has_value());
    if (!verdict.text.empty()) log_error(escape_control(verdict.text));
    return verdict.code;
  }

  const LaunchOptions& options_;
  SignalQueue signals_;
  Listener store_;
  RankProcesses ranks_;
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> interrupted_at_;
  bool down_ = false;
  bool suspected_ = false;
  bool hung_ = false;
};

}  // namespace

int launch(const LaunchOptions& options) { return Launch(options).run(); }

}  // namespace lorikeet::comm
