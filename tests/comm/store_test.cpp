#include "comm/store.h"

#include <c10/util/Logging.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "comm/socket.h"
#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Catch::Contains;
using std::chrono::seconds;

TEST_CASE("ranks meet at a port of the loopback address") {
  const int port = listen_on("127.0.0.1", 0).port;
  const Placement first{.rank = 0, .world_size = 2, .port = port};
  const Placement second{.rank = 1, .world_size = 2, .port = port};
  std::string heard;
  std::thread other([&] {
    const auto store = connect_store(second, seconds(20));
    heard = share_text(*store, 1, "news", "", seconds(20));
  });
  const auto store = connect_store(first, seconds(20));
  share_text(*store, 0, "news", "hello", seconds(20));
  other.join();
  CHECK(heard == "hello");
}

TEST_CASE("processes that a launcher has started again read nothing of those before them") {
  Placement holder{.world_size = 2, .port = listen_on("127.0.0.1", 0).port};
  const auto held = connect_store(holder, seconds(20));
  holder.store_is_held = true;
  const auto store_of = [&](int restarts) {
    Placement placement = holder;
    placement.restarts = restarts;
    return connect_store(placement, seconds(20));
  };
  announce(*store_of(0), "failure");
  wait_for(*store_of(0), "failure", seconds(1));
  CHECK(store_of(0)->check({"failure"}));
  CHECK_FALSE(store_of(1)->check({"failure"}));
}

TEST_CASE("a taken port and an unreachable store are errors that name the address") {
  const Listener taken = listen_on("127.0.0.1", 0);
  const std::string address = "127.0.0.1:" + std::to_string(taken.port);
  CHECK_THAT(test::error_text([&] { listen_on("127.0.0.1", taken.port); }, ErrorKind::kEnvironment),
             Contains(address) && Contains("choose another"));
  const int free_port = listen_on("127.0.0.1", 0).port;
  const Placement nobody{.rank = 1, .world_size = 2, .port = free_port};
  CHECK_THAT(test::error_text([&] { connect_store(nobody, seconds(1)); }, ErrorKind::kEnvironment),
             Contains("rank 1 can't reach 127.0.0.1:" + std::to_string(free_port) +
                      " within 1 s: nothing listens there; has rank 0 been started"));
  CHECK_THAT(test::error_text([] { listen_on("no.such.host.invalid", 0); }, ErrorKind::kEnvironment),
             Contains("no.such.host.invalid"));
}

TEST_CASE("what listens in the store's place is named as the cause") {
  const Listener other = listen_on("127.0.0.1", 0);
  std::thread closes_at_once([&] {
    for (int fd = 0; (fd = ::accept(other.fd.get(), nullptr, nullptr)) >= 0;) ::close(fd);
  });
  const Placement rank{.rank = 1, .world_size = 2, .port = other.port};
  const int level = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_ERROR);  // as in a run
  {
    const test::CapturedStderr stderr_of_c10d;
    CHECK_THAT(test::error_text([&] { connect_store(rank, seconds(1)); }, ErrorKind::kEnvironment),
               Contains("something listens there, and it may not be the store of this run"));
    CHECK(stderr_of_c10d.text().empty());
  }
  CHECK(std::exchange(FLAGS_caffe2_log_level, level) == c10::GLOG_ERROR);
  ::shutdown(other.fd.get(), SHUT_RDWR);
  closes_at_once.join();
}

TEST_CASE("a name is set once") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  CHECK(set_once(*store, "here/1", "a") == "a");
  CHECK(set_once(*store, "here/1", "b") == "a");
  CHECK(set_once(*store, "here/2", "b") == "b");
}

TEST_CASE("facts that differ between ranks are named with both values") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const Facts facts{{"config", "a"}, {"data", "b"}, {"version", "c"}};
  require_agreement(*store, 0, facts, seconds(1));
  require_agreement(*store, 1, facts, seconds(1));
  Facts others = facts;
  others[1].second = "x";
  CHECK_THAT(test::error_text([&] { require_agreement(*store, 2, others, seconds(1)); }),
             Contains("data differs between ranks: 'b' on rank 0, 'x' on rank 2"));
}

TEST_CASE("a rank 0 that says nothing is an error in time") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  CHECK_THAT(test::error_text([&] { share_text(*store, 1, "plan", "", seconds(1)); }, ErrorKind::kRunFailed),
             Contains("another rank has failed or is stuck: it gave no 'plan'"));
}
