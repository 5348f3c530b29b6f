#include "comm/peer_watch.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "comm/interfaces.h"
#include "comm/reason.h"
#include "comm/rendezvous.h"

namespace lorikeet::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kFailureKey = "watch/failure";
// Between two looks at the time.
constexpr milliseconds kTick{100};
// A process whose own threads were held up for longer can't tell who else was silent meanwhile.
constexpr milliseconds kOwnStall{2000};
// What a round with the store may take at the end, before it counts as blocked.
constexpr milliseconds kLastWord{500};
// How long the main thread waits for its own report to be in the store.
constexpr milliseconds kReportLimit{2000};
// What finding a silent rank, and reading of it, takes beyond `lost_after`.
constexpr milliseconds kFindingLimit{2000};

std::string key_of(int rank) { return "watch/" + std::to_string(rank); }

// What a rank reports.
struct Report {
  std::int64_t beat = 0;  // grows with every report
  std::string host;       // empty where all ranks are on one machine
  std::string state;      // "training, in all-reduce 7"
  std::string phase;
  bool waits = false;  // in a collective
  std::int64_t sequence = 0;
  bool done = false;
};

std::string encode(const Report& report) {
  return Json()
      .set("beat", report.beat)
      .set("host", report.host)
      .set("state", report.state)
      .set("phase", report.phase)
      .set("waits", report.waits)
      .set("sequence", report.sequence)
      .set("done", report.done)
      .dump();
}

Report decode_report(const std::string& text) {
  const Json json = Json::parse(text, "a rank's report");
  const JsonView view(json, "a rank's report");
  return {.beat = view.at("beat").as_int(),
          .host = view.at("host").as_string(),
          .state = view.at("state").as_string(),
          .phase = view.at("phase").as_string(),
          .waits = view.at("waits").as_bool(),
          .sequence = view.at("sequence").as_int(),
          .done = view.at("done").as_bool()};
}

std::string encode(const Failure& failure) {
  return Json().set("text", failure.text).set("exit_code", failure.exit_code).dump();
}

Failure decode_failure(const std::string& text) {
  const Json json = Json::parse(text, "a failure");
  const JsonView view(json, "a failure");
  return {.text = view.at("text").as_string(), .exit_code = static_cast<int>(view.at("exit_code").as_int())};
}

std::string seconds_text(milliseconds time) { return std::to_string(time.count() / 1000) + " s"; }

// A thread that no signal interrupts: they are the main thread's.
template <typename Body>
std::thread start_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

// Outlives its PeerWatch while the store holds up the thread that talks to it.
class PeerWatch::Watcher : public std::enable_shared_from_this<Watcher> {
 public:
  Watcher(c10::intrusive_ptr<c10d::Store> store, std::function<BoardSlot()> state, WatchOptions options)
      : store_(std::move(store)), state_(std::move(state)), options_(std::move(options)) {}

  void start() {
    answered_ = Clock::now();
    watch((options_.rank + 1) % options_.world_size);
    if (options_.rank != 0) watch(0);
    talker_ = start_thread([self = shared_from_this()] { self->talk(); });
    keeper_ = start_thread([self = shared_from_this()] { self->keep_time(); });
  }

  void stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kLastWord, [&] { return silent_; });
    const bool blocked = !silent_;
    lock.unlock();
    keeper_.join();
    if (blocked) {
      talker_.detach();
    } else {
      talker_.join();
    }
  }

  void fail(const Failure& failure) {
    std::unique_lock lock(mutex_);
    main_ends_ = true;
    if (!failure_) failure_ = failure;
    changed_.notify_all();
    changed_.wait_for(lock, kReportLimit, [&] { return published_ || silent_; });
    // All ranks read the failure within an interval, and some from a store that this process holds.
    changed_.wait_for(lock, 2 * options_.interval, [&] { return silent_; });
  }

  Failure wait_for_cause(const Failure& otherwise) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, options_.lost_after + kFindingLimit, [&] { return failure_.has_value(); });
    }
    fail(otherwise);  // if there is none yet
    const std::lock_guard lock(mutex_);
    return *failure_;
  }

  void say_at_end(const std::string& text) {
    const std::lock_guard lock(mutex_);
    said_at_end_ = text;
  }

  void on_failure(std::function<void()> abort) {
    const std::lock_guard lock(mutex_);
    aborts_.push_back(std::move(abort));
  }

  void done() {
    std::unique_lock lock(mutex_);
    done_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kReportLimit, [&] { return done_reported_ || silent_; });
  }

 private:
  // What is known of a rank that this one watches.
  struct Peer {
    std::optional<Report> report;
    Clock::time_point heard;  // when its beat last changed
  };

  void watch(int rank) { peers_[rank] = {.report = std::nullopt, .heard = Clock::now()}; }

  // The first failure counts.
  void found(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    changed_.notify_all();
  }

  std::string get(const std::string& key) {
    const std::vector<std::uint8_t> bytes = store_->get(key);
    return {bytes.begin(), bytes.end()};
  }

  void talk() {
    try {
      while (exchange()) {
      }
    } catch (const std::exception& error) {
      found({.text = "[watch] the run's store, which " + options_.store_holder + " holds, is gone (" +
                     reason(error) + ")" + state_of_first()});
    }
    const std::lock_guard lock(mutex_);
    silent_ = true;
    changed_.notify_all();
  }

  // One round with the store, and the pause after it; false when there is nothing more to say.
  bool exchange() {
    const Clock::time_point begin = Clock::now();
    const bool was_held_up = begin - last_exchange_ > kOwnStall;
    last_exchange_ = begin;
    std::optional<Failure> failure;
    Report own{.beat = ++beat_, .host = options_.host};
    BoardSlot slot{};
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return false;
      own.done = done_;
      failure = failure_;
      slot = state_();
    }
    own.state = describe(slot);
    own.phase = escape_control(slot.phase);
    own.waits = slot.in_collective != 0;
    own.sequence = static_cast<std::int64_t>(slot.sequence);
    store_->set(key_of(options_.rank), encode(own));
    if (failure) {
      publish(*failure);
    } else if (!own.done) {
      listen(was_held_up);
      look_for_hang(slot);
    }
    std::unique_lock lock(mutex_);
    answered_ = Clock::now();
    published_ = failure.has_value();
    done_reported_ = own.done;
    changed_.notify_all();
    changed_.wait_for(lock, options_.interval,
                      [&] { return stopping_ || (failure_ && !published_) || (done_ && !done_reported_); });
    return !stopping_;
  }

  // The first failure that is published is the run's; true when it is this one.
  bool publish(const Failure& failure) {
    const std::string own = encode(failure);
    const std::string first = store_->compareSet(kFailureKey, "", own);
    const std::lock_guard lock(mutex_);
    failure_ = decode_failure(first);
    changed_.notify_all();
    return first == own;
  }

  void listen(bool was_held_up) {
    if (store_->check({kFailureKey})) return found(decode_failure(get(kFailureKey)));
    std::optional<int> next;
    for (auto& [rank, peer] : peers_) {
      if (peer.report && peer.report->done) continue;
      const Clock::time_point now = Clock::now();
      if (was_held_up) peer.heard = now;
      if (store_->check({key_of(rank)})) {
        Report report = decode_report(get(key_of(rank)));
        if (!peer.report || report.beat != peer.report->beat) peer.heard = now;
        peer.report = std::move(report);
        if (peer.report->done) next = (rank + 1) % options_.world_size;
      }
      require_sign_of_life(rank, peer, now);
    }
    // A rank that is done does not watch the one after it any more.
    if (next && *next != options_.rank && !peers_.contains(*next)) watch(*next);
  }

  void require_sign_of_life(int rank, const Peer& peer, Clock::time_point now) {
    if (peer.report && peer.report->done) return;
    const milliseconds limit = peer.report ? options_.lost_after : options_.first_report;
    if (now - peer.heard <= limit) return;
    found({.text = "[watch] " + rank_name(rank, peer.report ? escape_control(peer.report->host) : "") +
                   (peer.report ? " has been silent for " + seconds_text(limit) + ", last in phase '" +
                                      peer.report->phase + "' (" + peer.report->state + ")"
                                : " has not come within " + seconds_text(limit)) +
                   ": it was killed or stopped, or its machine or network failed"});
  }

  // Only when seen twice: the state may be read while it is written.
  void look_for_hang(const BoardSlot& slot) {
    const auto seconds = overdue_seconds(slot);
    if (!std::exchange(suspected_, seconds.has_value()) || !seconds) return;
    std::string table, absent;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (!store_->check({key_of(rank)})) continue;
      const Report report = decode_report(get(key_of(rank)));
      const std::string name = rank_name(rank, escape_control(report.host));
      table += "\n  " + name + ": " + escape_control(report.state);
      const bool came = report.waits && report.sequence >= static_cast<std::int64_t>(slot.sequence);
      if (!came && !report.done) {
        absent += (absent.empty() ? "" : ", ") + name + " in phase '" + report.phase + "'";
      }
    }
    const std::string hang = "[watch] " + hang_text(own_name(), slot, *seconds);
    const Failure failure{.text = hang + " for " + (absent.empty() ? missing_message(slot) : absent)};
    // One rank shows the table.
    if (publish(failure)) log_error(hang + "; the ranks stand here:" + table);
  }

  std::string own_name() const { return rank_name(options_.rank, options_.host); }

  // What all ranks wait for, when they wait for one another. The first collective is the first to use some
  // connections.
  std::string missing_message(const BoardSlot& slot) const {
    const std::string text = "a message that does not come";
    if (slot.sequence > 1 || options_.address.empty()) return text;
    return text + ": all ranks reach the store, and some not each other; " +
           advice_for_unreachable_peers(own_name(), options_.address);
  }

  std::string state_of_first() const {
    const auto first = peers_.find(0);
    if (first == peers_.end() || !first->second.report) return "";
    return "; rank 0 was last in phase '" + first->second.report->phase + "' (" +
           first->second.report->state + ")";
  }

  // Ends the process when a failure is known and the main thread stays.
  void keep_time() {
    std::unique_lock lock(mutex_);
    Clock::time_point tick = Clock::now();
    while (!stopping_ && !failure_) {
      changed_.wait_for(lock, kTick, [&] { return stopping_ || failure_.has_value(); });
      const Clock::time_point now = Clock::now();
      if (now - tick > kOwnStall) answered_ = now;
      tick = now;
      if (failure_ || done_ || silent_ || now - answered_ <= options_.lost_after) continue;
      failure_ = {.text = "[watch] the run's store, which " + options_.store_holder +
                          " holds, gave no answer in " + seconds_text(options_.lost_after) +
                          ": its machine or the network to it failed"};
      changed_.notify_all();
    }
    if (stopping_ || done_) return;
    for (auto& abort : aborts_) start_thread(std::move(abort)).detach();
    changed_.wait_for(lock, options_.grace, [&] { return stopping_; });
    if (main_ends_) changed_.wait_for(lock, options_.grace / 2, [&] { return stopping_; });
    if (stopping_) return;
    log_error(escape_control(failure_->text) + (said_at_end_.empty() ? "" : "; " + said_at_end_) + "; " +
              own_name() + " was ended");
    const int code = failure_->exit_code;
    lock.unlock();
    options_.end(code);
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::function<BoardSlot()> state_;
  const WatchOptions options_;
  std::thread talker_, keeper_;

  // The talker's own.
  std::map<int, Peer> peers_;
  std::int64_t beat_ = 0;
  bool suspected_ = false;
  Clock::time_point last_exchange_ = Clock::now();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::function<void()>> aborts_;
  std::optional<Failure> failure_;
  std::string said_at_end_;     // behind the failure's text
  Clock::time_point answered_;  // when the store last did
  bool published_ = false;      // the store has the failure
  bool done_ = false;
  bool done_reported_ = false;
  bool main_ends_ = false;  // the main thread knows of the failure and ends
  bool stopping_ = false;
  bool silent_ = false;  // the talker has ended
};

PeerWatch::PeerWatch(const c10::intrusive_ptr<c10d::Store>& store, std::function<BoardSlot()> state,
                     WatchOptions options)
    : watcher_(std::make_shared<Watcher>(store->clone(), std::move(state), std::move(options))) {
  watcher_->start();
}

PeerWatch::~PeerWatch() { watcher_->stop(); }

void PeerWatch::on_failure(std::function<void()> abort) { watcher_->on_failure(std::move(abort)); }
void PeerWatch::say_at_end(const std::string& text) { watcher_->say_at_end(text); }
void PeerWatch::fail(const Failure& failure) { watcher_->fail(failure); }
Failure PeerWatch::wait_for_cause(const Failure& otherwise) { return watcher_->wait_for_cause(otherwise); }
void PeerWatch::done() { watcher_->done(); }

}  // namespace lorikeet::comm
