#include "comm/peer_watch.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "comm/socket.h"
#include "comm/store.h"
#include "support/captured_stderr.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Catch::Contains;
using std::chrono::milliseconds;

namespace {

// What ranks' watches call, and with which code.
class Ends {
 public:
  void add(int rank, int code) {
    const std::lock_guard lock(mutex_);
    codes_[rank] = code;
    changed_.notify_all();
  }
  /// The exit code that the watch of `rank` ended it with; waits.
  std::optional<int> code_of(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return codes_.contains(rank); });
    return codes_.contains(rank) ? std::optional(codes_[rank]) : std::nullopt;
  }
  bool none() {
    const std::lock_guard lock(mutex_);
    return codes_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> codes_;
};

BoardSlot in_phase(const char* phase) {
  BoardSlot slot{};
  std::strcpy(slot.phase, phase);
  return slot;
}

WatchOptions options(int rank, int world_size, Ends* ends) {
  return {.rank = rank,
          .world_size = world_size,
          .store_holder = "rank 0",
          .interval = milliseconds(20),
          .lost_after = milliseconds(1000),
          .first_report = milliseconds(2000),
          .grace = milliseconds(100),
          .end = [rank, ends](int code) { ends->add(rank, code); }};
}

// The watches of a run's ranks, all in this process.
struct Run {
  explicit Run(int size) {
    for (int rank = 0; rank < size; ++rank) start(rank, size, in_phase("training"));
    // Until each has made a whole round after the first reports of all: then it has read those it watches.
    std::map<int, std::vector<std::uint8_t>> reports;
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < size; ++rank) reports[rank] = next_report(rank, reports[rank]);
    }
  }
  Run() = default;
  void start(int rank, int size, const BoardSlot& slot) {
    watches[rank] = std::make_unique<PeerWatch>(store, [slot] { return slot; }, options(rank, size, &ends));
  }
  /// The first report of a rank that differs from `last`; waits.
  std::vector<std::uint8_t> next_report(int rank, const std::vector<std::uint8_t>& last) {
    const std::string key = "watch/" + std::to_string(rank);
    while (true) {
      const auto report = store->get(key);
      if (report != last) return report;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  /// As if the rank had been killed.
  void kill(int rank) { watches.erase(rank); }

  Ends ends;
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  std::map<int, std::unique_ptr<PeerWatch>> watches;
};

// The state of a rank that has waited in a collective for longer than it may.
BoardSlot waiting_too_long(const char* phase, std::uint64_t sequence) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  BoardSlot slot = in_phase(phase);
  slot.in_collective = 1;
  slot.sequence = sequence;
  slot.since_ns = static_cast<std::uint64_t>(now.tv_sec - std::min<time_t>(now.tv_sec, 5)) * 1'000'000'000;
  slot.limit_seconds = 3;
  return slot;
}

const Failure kUnknown{.text = "not found"};

}  // namespace

TEST_CASE("an error of one rank ends the others with its exit code") {
  Run run(3);
  run.watches[1]->fail({.text = "rank 1 failed in phase 'training': bad row", .exit_code = 3});
  run.kill(1);
  CHECK(run.watches[0]->wait_for_cause(kUnknown).text == "rank 1 failed in phase 'training': bad row");
  CHECK(run.ends.code_of(0) == 3);
  CHECK(run.ends.code_of(2) == 3);
}

TEST_CASE("a rank that is silent is named with its phase, and the collectives of the others are aborted") {
  Run run(3);
  Ends aborted;
  for (const int rank : {0, 2}) run.watches[rank]->on_failure([rank, &aborted] { aborted.add(rank, 0); });
  run.kill(1);
  const Failure cause = run.watches[2]->wait_for_cause(kUnknown);
  CHECK_THAT(cause.text, Contains("rank 1 has been silent for 1 s, last in phase 'training'"));
  CHECK(run.ends.code_of(0) == 1);
  CHECK(run.ends.code_of(2) == 1);
  CHECK(aborted.code_of(0) == 0);
  CHECK(aborted.code_of(2) == 0);
}

TEST_CASE("a rank that its watch ends says last how the run goes on") {
  const test::CapturedStderr said;
  {
    Run run(2);
    run.watches[0]->say_at_end("the same command goes on");
    run.kill(1);
    CHECK(run.ends.code_of(0) == 1);
  }
  CHECK_THAT(said.text(),
             Contains("its machine or network failed; the same command goes on; rank 0 was ended"));
}

TEST_CASE("of several ranks that are lost at once the first is named") {
  Run run(4);
  run.kill(2);
  run.kill(3);
  CHECK_THAT(run.watches[0]->wait_for_cause(kUnknown).text, Contains("rank 2 has been silent"));
}

TEST_CASE("a rank that never comes is named") {
  Run run;
  run.start(0, 2, in_phase("rendezvous"));
  CHECK(run.ends.code_of(0) == 1);
  CHECK_THAT(run.watches[0]->wait_for_cause(kUnknown).text, Contains("rank 1 has not come within 2 s"));
}

TEST_CASE("a rank that has done its part may go, and the one after it is watched in its place") {
  Run run(3);
  run.watches[1]->done();
  run.kill(1);
  std::this_thread::sleep_for(milliseconds(1500));
  CHECK(run.ends.none());
  run.kill(2);
  CHECK_THAT(run.watches[0]->wait_for_cause(kUnknown).text, Contains("rank 2 has been silent"));
}

TEST_CASE("a rank that waits in a collective for too long names those that have not come to it") {
  BoardSlot waiting = waiting_too_long("training", 7);
  Run run;
  run.start(1, 3, in_phase("tokenise"));
  BoardSlot in_time = waiting;
  in_time.limit_seconds = 600;
  run.start(2, 3, in_time);
  run.start(0, 3, waiting);
  CHECK(run.ends.code_of(1) == 1);
  const std::string said = run.watches[1]->wait_for_cause(kUnknown).text;
  CHECK_THAT(said, Contains("rank 0 has waited ") && Contains("for rank 1 in phase 'tokenise'"));
  CHECK_THAT(said, !Contains("rank 2"));
}

TEST_CASE("ranks that wait for one another to join the group learn what may keep them apart") {
  for (const bool several_machines : {true, false}) {
    Run run;
    for (int rank = 0; rank < 2; ++rank) {
      WatchOptions of_rank = options(rank, 2, &run.ends);
      if (several_machines) {
        of_rank.host = "node" + std::to_string(rank);
        of_rank.address = "10.0.0." + std::to_string(rank);
      }
      BoardSlot slot = waiting_too_long("connect", 0);
      if (rank == 1) slot.limit_seconds = 600;
      run.watches[rank] = std::make_unique<PeerWatch>(run.store, [slot] { return slot; }, of_rank);
    }
    CHECK(run.ends.code_of(1) == 1);
    const std::string said = run.watches[1]->wait_for_cause(kUnknown).text;
    CHECK_THAT(said, Contains(several_machines ? "rank 0 on node0 has waited " : "rank 0 has waited ") &&
                         Contains("s to join the group (distributed.watchdog_seconds) for a message"));
    const auto advice = Contains("rank 0 on node0 listens on 10.0.0.0; firewalls must let all ports through");
    if (several_machines)
      CHECK_THAT(said, advice);
    else
      CHECK_THAT(said, !Contains("firewalls"));
  }
}

TEST_CASE("a loss that nobody can explain is the failure of the rank that reports it") {
  Run run(2);
  CHECK(run.watches[1]->wait_for_cause({.text = "rank 1 lost a connection"}).text ==
        "rank 1 lost a connection");
  CHECK(run.ends.code_of(0) == 1);
}

TEST_CASE("a store that is gone ends the ranks that used it") {
  Ends ends;
  const int port = listen_on("127.0.0.1", 0).port;
  auto held = connect_store({.rank = 0, .world_size = 2, .port = port}, std::chrono::seconds(20));
  auto store = connect_store({.rank = 1, .world_size = 2, .port = port}, std::chrono::seconds(20));
  PeerWatch watch(store, [] { return in_phase("training"); }, options(1, 2, &ends));
  held.reset();
  CHECK(ends.code_of(1) == 1);
  CHECK_THAT(watch.wait_for_cause(kUnknown).text, Contains("the run's store, which rank 0 holds, is gone"));
}
