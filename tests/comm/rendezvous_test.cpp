#include "comm/rendezvous.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "comm/handshake.h"
#include "nodes.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Catch::Contains;
using test::free_port;
using test::meet;
using test::node_options;
using test::Outcome;

namespace {

// Both sides' errors, one node each beside node 0.
std::pair<Outcome, Outcome> both(const NodeOptions& host, const NodeOptions& joiner) {
  auto zero = meet(host), one = meet(joiner);
  return {zero.get(), one.get()};
}

// A connection that stays open and sends `bytes`; waits until somebody listens.
UniqueFd stranger(int port, const std::string& bytes = "") {
  std::string problem;
  const auto address = resolve("127.0.0.1", port, &problem);
  for (int i = 0; i < 500; ++i) {
    UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 && !connected_to_itself(fd.get())) {
      ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      return fd;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

// Whether the other side has closed a connection.
bool has_ended(const UniqueFd& fd) {
  char buffer[4096];
  ssize_t count = 1;
  while (count > 0) count = ::recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace

TEST_CASE("launchers that know the secret meet and agree on ranks and store") {
  const int port = free_port();
  auto two = meet(node_options(2, 3, port), 1);
  auto one = meet(node_options(1, 3, port), 4);
  auto zero = meet(node_options(0, 3, port), 2);
  const Outcome host = zero.get(), first = one.get(), second = two.get();
  REQUIRE(host.meeting);
  for (const Outcome* joiner : {&first, &second}) {
    INFO(joiner->error);
    REQUIRE(joiner->meeting);
    CHECK(joiner->meeting->processes == std::vector<int>{2, 4, 1});
    CHECK(joiner->meeting->store_host == "127.0.0.1");
    CHECK(joiner->meeting->store_port == host.meeting->store_port);
    CHECK(joiner->meeting->others.size() == 1);
  }
  CHECK(host.meeting->store.port == host.meeting->store_port);
  CHECK(host.meeting->others.size() == 3);
  CHECK_FALSE(host.meeting->others[0].open());
}

TEST_CASE("without any secret launchers meet too") {
  NodeOptions host = node_options(0, 2, free_port());
  host.secret.reset();
  NodeOptions joiner = host;
  joiner.node = 1;
  const auto [zero, one] = both(host, joiner);
  CHECK(zero.meeting);
  CHECK(one.meeting);
}

TEST_CASE("a launcher with another secret is not let in, and the right one still is") {
  const int port = free_port();
  auto host = meet(node_options(0, 2, port));
  NodeOptions wrong = node_options(1, 2, port);
  wrong.secret = "another secret of many characters";
  const Outcome turned_away = meet(wrong).get();
  CHECK(turned_away.kind == ErrorKind::kUsage);
  CHECK_THAT(turned_away.error, Contains("has another secret"));
  CHECK(turned_away.seconds < 5);
  CHECK(meet(node_options(1, 2, port)).get().meeting);
  CHECK(host.get().meeting);
}

TEST_CASE("node 0 that only saw launchers without the right secret says so when its time is up") {
  const int port = free_port();
  NodeOptions wrong = node_options(1, 2, port);
  SECTION("another secret") { wrong.secret = "another secret of many characters"; }
  SECTION("none") { wrong.secret.reset(); }
  const auto [host, joiner] = both(node_options(0, 2, port, 2), wrong);
  CHECK(host.kind == ErrorKind::kUsage);
  CHECK_THAT(host.error, Contains("node 1 of 2 did not join") && Contains("didn't know the secret"));
  CHECK(joiner.kind == ErrorKind::kUsage);
  CHECK_THAT(joiner.error, Contains("secret"));
}

TEST_CASE("a secret on the joiner's side alone ends both") {
  NodeOptions host = node_options(0, 2, free_port());
  host.secret.reset();
  const auto [zero, one] = both(host, node_options(1, 2, host.port));
  CHECK(zero.kind == ErrorKind::kUsage);
  CHECK_THAT(zero.error, Contains("was given a secret and node 0 none"));
  CHECK(one.kind == ErrorKind::kUsage);
  CHECK_THAT(one.error, Contains("this node was given a secret and node 0"));
  CHECK(zero.seconds < 5);
}

TEST_CASE("launchers that contradict each other all end at once and name both values") {
  const int port = free_port();
  NodeOptions joiner = node_options(1, 3, port);
  std::string expected;
  SECTION("versions") {
    joiner.version = "9.9.9";
    expected = "has version 9.9.9 and node 0 version " + std::string(kVersion);
  }
  SECTION("numbers of nodes") {
    joiner.nodes = 4;
    expected = "was given --nnodes 4 and node 0 --nnodes 3";
  }
  SECTION("a node's number that is out of range") {
    joiner.node = 3;
    expected = "was given --node-rank 3, expected one from 1 to 2";
  }
  SECTION("a node's number that is taken") {
    joiner.node = 2;
    expected = "was given --node-rank 2 and so was the one at 127.0.0.1";
  }
  auto zero = meet(node_options(0, 3, port)), two = meet(node_options(2, 3, port));
  std::this_thread::sleep_for(std::chrono::seconds(2));  // node 2 has joined, on a busy machine too
  auto one = meet(joiner);
  for (auto* launcher : {&zero, &one, &two}) {
    const Outcome outcome = launcher->get();
    CHECK(outcome.kind == ErrorKind::kUsage);
    CHECK_THAT(outcome.error, Contains(expected));
    CHECK(outcome.seconds < 8);
  }
}

TEST_CASE("strangers that stall, send rubbish, or come by hundreds delay nobody") {
  const int port = free_port();
  auto host = meet(node_options(0, 2, port));
  std::vector<UniqueFd> strangers;
  strangers.push_back(stranger(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  strangers.push_back(stranger(port, std::string(100'000, 'x')));
  std::string endless(20'000, '[');
  endless += '\n';
  strangers.push_back(stranger(port, endless));
  strangers.push_back(stranger(port, "{\"nonce\":\"\",\"node\":1}\n"));
  for (int i = 0; i < 300; ++i) strangers.push_back(stranger(port));
  // 256 may wait at a time.
  std::ptrdiff_t ended = 0;
  for (int i = 0; i < 40 && ended < 48; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ended = std::count_if(strangers.begin(), strangers.end(), has_ended);
  }
  CHECK(ended >= 48);
  const Outcome joiner = meet(node_options(1, 2, port)).get();
  INFO(joiner.error);
  CHECK(joiner.meeting);
  CHECK(joiner.seconds < 4);  // a connection that stalls may take 5
  CHECK(host.get().meeting);
}

TEST_CASE("a proof serves for one connection only") {
  const int port = free_port();
  auto host = meet(node_options(0, 2, port, 3));
  // What a joiner said to an earlier challenge, word for word.
  Hello hello{.nonce = std::string(64, 'a'),
              .instance = std::string(64, 'b'),
              .version = std::string(kVersion),
              .nodes = 2,
              .node = 1,
              .processes = 1};
  hello.proof = joiner_proof(test::kSecret, std::string(64, 'c'), hello);
  const UniqueFd fd = stranger(port, encode(hello) + "\n");
  const Outcome outcome = host.get();
  CHECK(outcome.kind == ErrorKind::kUsage);
  CHECK_THAT(outcome.error, Contains("didn't know the secret"));
}

TEST_CASE("a joiner doesn't trust a host that can't prove the secret") {
  const Listener listener = listen_on("127.0.0.1", 0);
  auto joiner = meet(node_options(1, 2, listener.port));
  LineChannel impostor(UniqueFd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                       kLongestJoinLine);
  impostor.send(encode(Challenge{std::string(kVersion), std::string(64, '0'), true}));
  std::optional<std::string> line;
  while (!(line = impostor.next_line()) && impostor.open()) impostor.receive();
  REQUIRE(line);
  // The best it can do: give the joiner's own proof back.
  impostor.send(encode(Welcome{read_hello(*line)->proof, 5}));
  const Outcome outcome = joiner.get();
  CHECK(outcome.kind == ErrorKind::kUsage);
  CHECK_THAT(outcome.error, Contains("doesn't know the secret, so it isn't node 0"));
}

TEST_CASE("a rendezvous that can't be is an error of the environment") {
  const int port = free_port();
  SECTION("nobody there") {
    const Outcome outcome = meet(node_options(1, 2, port, 1)).get();
    CHECK(outcome.kind == ErrorKind::kEnvironment);
    CHECK_THAT(outcome.error, Contains("node 1 can't join node 0 at 127.0.0.1:" + std::to_string(port)));
    CHECK(outcome.seconds < 3);
  }
  SECTION("nobody comes") {
    const Outcome outcome = meet(node_options(0, 3, port, 1)).get();
    CHECK(outcome.kind == ErrorKind::kEnvironment);
    CHECK_THAT(outcome.error, Contains("node 1, 2 of 3 did not join"));
  }
  SECTION("a port that is taken") {
    const Listener taken = listen_on("127.0.0.1", port);
    const Outcome outcome = meet(node_options(0, 2, port)).get();
    CHECK(outcome.kind == ErrorKind::kEnvironment);
    CHECK_THAT(outcome.error, Contains("choose another"));
  }
  SECTION("an address that node 0 can't listen on") {
    const auto [host, kind, said] = GENERATE(table<std::string, ErrorKind, std::string>({
        {"192.0.2.1", ErrorKind::kEnvironment, "not an address of this machine"},
        {"0.0.0.0", ErrorKind::kUsage, "every interface"},
    }));
    NodeOptions options = node_options(0, 2, port);
    options.host = host;
    const Outcome outcome = meet(options).get();
    CHECK(outcome.kind == kind);
    CHECK_THAT(outcome.error, Contains(said));
  }
}

TEST_CASE("who waits is told when another is interrupted, or node 0's time is up") {
  const int port = free_port();
  std::atomic<bool> asked = false;
  const Interruption interruption{-1, [&] { return asked.load(); }};
  SECTION("node 0") {
    auto one = meet(node_options(1, 3, port));
    auto zero = meet(node_options(0, 3, port), 1, interruption);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    asked = true;
    CHECK(zero.get().kind == ErrorKind::kInterrupted);
    const Outcome outcome = one.get();
    CHECK(outcome.kind == ErrorKind::kInterrupted);
    CHECK_THAT(outcome.error, Contains("node 0 was interrupted"));
  }
  SECTION("another") {
    auto zero = meet(node_options(0, 3, port));
    auto one = meet(node_options(1, 3, port), 1, interruption);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    asked = true;
    CHECK(one.get().kind == ErrorKind::kInterrupted);
    CHECK(zero.get().kind == ErrorKind::kInterrupted);
  }
  SECTION("the time") {
    auto zero = meet(node_options(0, 3, port, 1.5)), one = meet(node_options(1, 3, port));
    CHECK(zero.get().kind == ErrorKind::kEnvironment);
    const Outcome outcome = one.get();
    CHECK(outcome.kind == ErrorKind::kEnvironment);
    CHECK_THAT(outcome.error, Contains("node 2 of 3 did not join"));
  }
}

TEST_CASE("a secret comes from a file that is its owner's alone, or from the environment") {
  const test::TemporaryFolder folder;
  const std::string file = folder / "secret";
  write_file_atomic(file, test::kSecret + "\n", 0600);
  CHECK(read_secret(file) == test::kSecret);
  chmod(file.c_str(), 0640);
  CHECK_THAT(test::error_text([&] { read_secret(file); }), Contains("chmod 600"));
  write_file_atomic(file, "short\n", 0600);
  CHECK_THAT(test::error_text([&] { read_secret(file); }), Contains("16 to 4096 characters, got 5"));
  CHECK_THAT(test::error_text([&] { read_secret(folder / "none"); }), Contains("can't open"));
  CHECK_THAT(test::error_text([&] { read_secret(folder.path()); }), Contains("is not a file"));
  CHECK_FALSE(read_secret({}));
  setenv("LORIKEET_SECRET", test::kSecret.c_str(), 1);
  CHECK(read_secret({}) == test::kSecret);
  unsetenv("LORIKEET_SECRET");
}
