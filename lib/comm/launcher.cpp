#include "comm/launcher.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "comm/hang_table.h"
#include "comm/node_link.h"
#include "comm/rank_processes.h"
#include "comm/signal_queue.h"

namespace lorikeet::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Message::Kind;
constexpr const char* kLoopback = "127.0.0.1";
// What ranks get when another node has failed: finding out may have taken kLostSeconds already.
constexpr double kRemoteGraceSeconds = 3;
// How much longer than its ranks a launcher may take to say that they have ended.
constexpr double kReportSeconds = 4;
// In which nodes have to say where their ranks stand.
constexpr double kStandingSeconds = 2;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::milliseconds(static_cast<int>(seconds * 1000));
}

bool over(const std::optional<Clock::time_point>& moment) { return moment && Clock::now() > *moment; }

// The event loop. Node 0's launcher is the hub: what concerns all passes through it, and it speaks the
// verdict. A run on one machine is a hub without others.
class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options),
        meeting_(meet()),
        ranks_(plan()),
        link_(std::move(meeting_.others)),
        ends_(meeting_.processes.size()) {}

  int run() {
    start();
    while (ranks_.running() || !all_over()) {
      wait_for_something();
      take_signals();
      hear();
      if (ranks_.reap()) bring_down(options_.grace_seconds, node());
      watch();
      show_standing();
      report_end();
      enforce_limits();
    }
    return conclusion();
  }

 private:
  int node() const { return meeting_.node; }
  bool hub() const { return node() == 0; }

  Meeting meet() {
    const NodeOptions& nodes = options_.nodes;
    if (nodes.nodes == 1) {
      Meeting alone{
          .processes = {options_.processes}, .store_host = kLoopback, .store = listen_on(kLoopback, 0)};
      alone.store_port = alone.store.port;
      return alone;
    }
    const Interruption interruption{signals_.fd(), [this] {
                                      for (int number; (number = signals_.take()) != 0;) {
                                        if (number != SIGCHLD) return true;
                                      }
                                      return false;
                                    }};
    return nodes.node == 0 ? host_meeting(nodes, options_.processes, interruption)
                           : join_meeting(nodes, options_.processes, interruption);
  }

  RankPlan plan() const {
    const auto& counts = meeting_.processes;
    return {.program = options_.program,
            .arguments = options_.arguments,
            .processes = options_.processes,
            .first_rank = std::accumulate(counts.begin(), counts.begin() + node(), 0),
            .world_size = std::accumulate(counts.begin(), counts.end(), 0),
            .node = node(),
            .nodes = static_cast<int>(counts.size()),
            .store = host_and_port(meeting_.store_host, meeting_.store_port),
            .listen_fd = meeting_.store.fd.get(),
            .signals = signals_.before()};
  }

  void start() {
    try {
      ranks_.start();
    } catch (const Error& error) {
      const Verdict verdict{Blame::kOutside, error.exit_code(),
                            std::string(error.what()) + " on node " + std::to_string(node())};
      tell({.kind = hub() ? Kind::kOver : Kind::kEnd, .verdict = verdict}, node());
      link_.flush(std::chrono::seconds(1));
      throw;
    }
    meeting_.store = {};  // rank 0 holds it now
  }

  // To all other launchers but the one that it comes from.
  void tell(const Message& message, int from) {
    if (hub()) {
      link_.send_all(message, from);
    } else if (from == node()) {
      link_.send(0, message);
    }
  }

  void wait_for_something() {
    constexpr int kMilliseconds = 200;
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    ranks_.add_to(watched);
    link_.add_to(watched);
    ::poll(watched.data(), watched.size(), kMilliseconds);
    ranks_.forward_output(false);
  }

  void take_signals() {
    for (int number; (number = signals_.take()) != 0;) {
      if (number == SIGCHLD) continue;
      // A terminal, or srun, may send Ctrl-C to all launchers: only a second one to the same counts as that.
      interrupt(signalled_, node());
      signalled_ = true;
    }
  }

  void interrupt(bool now, int from) {
    if (now ? ended_now_ : interrupted_) return;
    interrupted_ = true;
    tell({.kind = Kind::kInterrupt, .now = now}, from);
    if (now) {
      end_now();
    } else {
      log_info("interrupted: the ranks save and end; once more ends them at once");
      ranks_.send(SIGTERM);
    }
  }

  void end_now() {
    ended_now_ = true;
    ranks_.send(SIGKILL);
    if (!give_up_at_) give_up_at_ = after(kReportSeconds);
  }

  // The ranks get a moment to see for themselves and say so.
  void bring_down(double grace_seconds, int from) {
    if (down_) return;
    down_ = true;
    tell({.kind = Kind::kDown}, from);
    if (!interrupted_) ranks_.send(SIGTERM);  // a second one would cut short what the first makes them save
    kill_at_ = after(grace_seconds);
    give_up_at_ = after(grace_seconds + kReportSeconds);
  }

  double remote_grace() const { return std::min(kRemoteGraceSeconds, options_.grace_seconds); }

  void hear() {
    for (const auto& [from, message] : link_.receive()) {
      const auto other = static_cast<std::size_t>(from);
      switch (message.kind) {
        case Kind::kInterrupt: interrupt(message.now, from); break;
        case Kind::kDown:
          bring_down(remote_grace(), from);
          if (message.now) end_now();
          break;
        case Kind::kHang:
          if (hub()) ask_standing(escape_control(message.text));
          break;
        case Kind::kAskStanding:
          link_.send(from, {.kind = Kind::kStanding, .rows = ranks_.standing()});
          break;
        case Kind::kStanding:
          if (table_) table_->add(other, message.rows);
          break;
        case Kind::kEnd:
          if (hub()) end_of_node(other, message.verdict);
          break;
        case Kind::kOver:
          if (!hub()) ends_[0] = message.verdict;
          if (!hub() && ranks_.running()) end_now();
          break;
        case Kind::kLost: lose(other, escape_control(message.text)); break;
      }
    }
  }

  void end_of_node(std::size_t other, const Verdict& verdict) {
    if (!ends_[other]) ends_[other] = verdict;
    if (verdict.blame != Blame::kNone) bring_down(remote_grace(), static_cast<int>(other));
  }

  // A launcher that has ended well says so before: one that hasn't is a failure.
  void lose(std::size_t other, const std::string& why, Blame blame = Blame::kOutside) {
    if (ends_[other]) return;
    ends_[other] = {blame, 1,
                    "[launch] node " + std::to_string(node()) + " lost node " + std::to_string(other) + " (" +
                        why +
                        "): its launcher, its machine or the network between them has failed; all ranks were "
                        "ended"};
    bring_down(remote_grace(), static_cast<int>(other));
  }

  // Looks for a rank that waits in a collective for longer than it may.
  void watch() {
    if (down_ || hang_told_) return;
    const auto hang = ranks_.find_hang();
    // Seen twice: a board may be read while its rank writes.
    const bool before = std::exchange(suspected_, hang.has_value());
    if (!hang || !before) return;
    hang_told_ = true;
    if (hub()) return ask_standing(*hang);
    log_error("[launch] " + *hang + "; node 0 shows where the ranks stand");
    tell({.kind = Kind::kHang, .text = *hang}, node());
    kill_at_ = after(kStandingSeconds + kReportSeconds);  // if node 0 has no answer to that
  }

  void ask_standing(const std::string& hang) {
    if (down_ || table_) return;
    hang_told_ = true;
    table_.emplace(hang, ends_.size(), std::chrono::milliseconds(static_cast<int>(kStandingSeconds * 1000)));
    table_->add(0, ranks_.standing());
    link_.send_all({.kind = Kind::kAskStanding});
  }

  void show_standing() {
    if (!table_ || !hung_.text.empty()) return;
    const auto text = table_->text();
    if (!text) return;
    log_error("[launch] " + *text);
    hung_ = {Blame::kOutside, 1, "[launch] " + table_->hang() + "; all ranks were ended"};
    tell({.kind = Kind::kDown, .now = true}, node());
    bring_down(0, node());
    end_now();
  }

  void report_end() {
    if (reported_ || ranks_.running()) return;
    reported_ = true;
    ranks_.forward_output(true);
    if (hub()) {
      end_of_node(0, ranks_.verdict());
    } else {
      tell({.kind = Kind::kEnd, .verdict = ranks_.verdict()}, node());
    }
  }

  void enforce_limits() {
    if (over(kill_at_)) {
      ranks_.send(SIGKILL);
      kill_at_.reset();
    }
    if (!over(give_up_at_)) return;
    for (std::size_t other = 0; other < ends_.size(); ++other) {
      const bool awaited = hub() ? other != 0 : other == 0;
      // Something else has failed before, and is to blame.
      if (awaited) lose(other, "its launcher does not answer", Blame::kConsequence);
    }
  }

  // Node 0 waits for all nodes, the others for its verdict.
  bool all_over() const {
    if (!hub()) return ends_[0].has_value();
    return std::all_of(ends_.begin(), ends_.end(), [](const auto& end) { return end.has_value(); });
  }

  int conclusion() {
    ranks_.forward_output(true);
    Verdict verdict;
    if (hub()) {
      for (const auto& end : ends_) verdict = graver(verdict, *end);
      verdict = conclude(verdict, interrupted_);
      if (!hung_.text.empty()) verdict = hung_;
      tell({.kind = Kind::kOver, .verdict = verdict}, node());
      link_.flush(std::chrono::seconds(1));
    } else {
      verdict = *ends_[0];
    }
    if (!verdict.text.empty() && hung_.text.empty()) log_error(escape_control(verdict.text));
    return verdict.code;
  }

  const LaunchOptions& options_;
  SignalQueue signals_;
  Meeting meeting_;
  RankProcesses ranks_;
  NodeLink link_;
  std::vector<std::optional<Verdict>> ends_;  // node 0: of each node; else of all, at [0]
  std::optional<Clock::time_point> kill_at_, give_up_at_;
  std::optional<HangTable> table_;
  Verdict hung_;            // with a text once the table was shown
  bool signalled_ = false;  // by a signal to this launcher
  bool interrupted_ = false;
  bool ended_now_ = false;
  bool down_ = false;
  bool suspected_ = false;
  bool hang_told_ = false;
  bool reported_ = false;
};

}  // namespace

int launch(const LaunchOptions& options) { return Launch(options).run(); }

}  // namespace lorikeet::comm
