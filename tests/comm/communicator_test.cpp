#include "comm/communicator.h"

#include <ATen/ATen.h>

#include <array>
#include <future>
#include <mutex>
#include <thread>

#include "ranks.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Catch::Contains;
using test::on_ranks;

namespace {

// Catch's assertions are not for threads: values are collected and checked behind.
class Results {
 public:
  void set(int rank, at::Tensor value) {
    const std::lock_guard lock(mutex_);
    if (values_.size() <= static_cast<std::size_t>(rank)) values_.resize(static_cast<std::size_t>(rank) + 1);
    values_[static_cast<std::size_t>(rank)] = std::move(value);
  }
  const std::vector<at::Tensor>& values() const { return values_; }

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> values_;
};

}  // namespace

TEST_CASE("an all-reduce sums over the ranks, to the same bits on all") {
  for (const int size : {2, 3, 4}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
      Results results;
      on_ranks(size, [&](Communicator& group) {
        at::Tensor x = (at::arange(1001) % 7 + group.rank()).to(dtype);
        group.all_reduce(x).wait();
        results.set(group.rank(), x);
      });
      const at::Tensor expected = (at::arange(1001) % 7) * size + size * (size - 1) / 2;
      for (const at::Tensor& value : results.values()) CHECK(at::equal(value, expected.to(dtype)));
    }
  }
}

TEST_CASE("an all-gather puts the ranks' parts one behind the other, a broadcast copies the root's") {
  Results gathered, copied;
  on_ranks(3, [&](Communicator& group) {
    at::Tensor all = at::empty({3, 4}, at::kByte);
    group.all_gather(all, at::full({4}, 10 + group.rank(), at::kByte)).wait();
    gathered.set(group.rank(), all);
    at::Tensor x = at::full({5}, group.rank(), at::kBFloat16);
    group.broadcast(x, 2).wait();
    copied.set(group.rank(), x);
  });
  for (const at::Tensor& all : gathered.values()) {
    for (int rank = 0; rank < 3; ++rank) CHECK(all[rank].eq(10 + rank).all().item<bool>());
  }
  for (const at::Tensor& x : copied.values()) CHECK(x.eq(2).all().item<bool>());
}

TEST_CASE("several collectives may be under way at once") {
  Results results;
  on_ranks(2, [&](Communicator& group) {
    std::vector<at::Tensor> parts;
    std::vector<Pending> pending;
    for (int i = 0; i < 10; ++i) parts.push_back(at::full({1000}, i + group.rank()));
    for (at::Tensor& part : parts) pending.push_back(group.all_reduce(part));
    for (Pending& p : pending) p.wait();
    results.set(group.rank(), at::stack(parts));
  });
  for (const at::Tensor& value : results.values()) {
    for (int i = 0; i < 10; ++i) CHECK(value[i].eq(2 * i + 1).all().item<bool>());
  }
}

TEST_CASE("traffic is counted by kind, in payload and in bytes that a rank sends") {
  CHECK(sent_bytes(Collective::kAllReduce, 1000, 2) == 1000);
  CHECK(sent_bytes(Collective::kAllReduce, 1000, 4) == 1500);
  CHECK(sent_bytes(Collective::kAllGather, 1000, 4) == 750);
  CHECK(sent_bytes(Collective::kBroadcast, 1000, 4) == 750);
  std::map<Collective, Traffic> traffic;
  on_ranks(2, [&](Communicator& group) {
    group.all_reduce(at::zeros({100})).wait();
    group.all_reduce(at::zeros({50})).wait();
    group.all_gather(at::empty({20}), at::empty({10})).wait();
    if (group.rank() == 0) traffic = group.ledger()->traffic;
  });
  CHECK(traffic[Collective::kAllReduce].calls == 2);
  CHECK(traffic[Collective::kAllReduce].payload_bytes == 600);
  CHECK(traffic[Collective::kAllReduce].sent_bytes == 600);
  CHECK(traffic[Collective::kAllGather].payload_bytes == 80);
  CHECK(traffic[Collective::kAllGather].sent_bytes == 40);
}

TEST_CASE("a rank that leaves makes the others' collectives errors that say so") {
  const auto run = [] {
    on_ranks(2, [](Communicator& group) {
      at::Tensor x = at::zeros({10});
      group.all_reduce(x).wait();
      if (group.rank() == 0) group.all_reduce(x).wait();  // the other is gone
    });
  };
  CHECK_THAT(test::error_text(run, ErrorKind::kRunFailed),
             Contains("[rank 0] all-reduce 2 failed: another rank is lost or hangs"));
}

TEST_CASE("a rank that hangs makes the others' collectives errors in time") {
  const auto run = [] {
    on_ranks(2,
             [](Communicator& group) {
               at::Tensor x = at::zeros({10});
               if (group.rank() == 0) {
                 group.all_reduce(x).wait();
               } else {
                 std::this_thread::sleep_for(std::chrono::seconds(3));
               }
             },
             {.timeout = std::chrono::milliseconds(500)});
  };
  CHECK_THAT(test::error_text(run, ErrorKind::kRunFailed), Contains("all-reduce 1 failed"));
}

TEST_CASE("an aborted group ends what is waited for, and never passes on what it left behind") {
  // Its collectives end by abort() alone, as NCCL's do when a peer is gone.
  struct Stuck : Communicator {
    Stuck() : Communicator(0, 2, {}) {}
    Wait stuck() {
      return [this] { ended.get_future().wait(); };
    }
    Wait start_all_reduce(at::Tensor&) override { return stuck(); }
    Wait start_all_gather(at::Tensor&, at::Tensor&) override { return stuck(); }
    Wait start_broadcast(at::Tensor&, int) override { return stuck(); }
    void abort_backend() override { ended.set_value(); }
    std::promise<void> ended;
  };
  const auto said = Contains("was aborted: another rank has failed");
  Stuck group;
  Pending pending = group.all_reduce(at::ones({4}));
  std::thread watch([&] { group.abort(); });
  CHECK_THAT(test::error_text([&] { pending.wait(); }, ErrorKind::kRunFailed), said);
  watch.join();
  CHECK_THAT(test::error_text([&] { group.all_reduce(at::ones({4})); }, ErrorKind::kRunFailed), said);
  bool read = false;
  CHECK_THAT(test::error_text([&] { group.while_waiting([&] { read = true; }); }, ErrorKind::kRunFailed),
             said);
  CHECK(read);
}

TEST_CASE("an observer is told when the host waits, for a collective or for what it is a part of") {
  struct Log : comm::Observer {
    std::vector<std::string> said;
    void begin(Collective, std::uint64_t sequence) override {
      said.push_back("begin " + std::to_string(sequence));
    }
    void waits(std::uint64_t sequence) override { said.push_back("waits " + std::to_string(sequence)); }
    void end() override { said.emplace_back("end"); }
  };
  std::array<Log, 2> logs;
  test::turn_flight_recorder_off();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = Communicator::join(store, rank, 2, at::Device(at::kCPU),
                                            {.observer = &logs[static_cast<std::size_t>(rank)]});
      comm::Pending pending = group->all_reduce(at::ones({4}));
      pending.wait();
      group->while_waiting([] {});
      CHECK_THROWS_AS(group->while_waiting([] { throw std::bad_alloc(); }), std::bad_alloc);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Log& log : logs) {
    CHECK(log.said == std::vector<std::string>{"waits 0", "end", "begin 1", "waits 1", "end", "waits 1",
                                               "end", "waits 1", "end"});
  }
}
