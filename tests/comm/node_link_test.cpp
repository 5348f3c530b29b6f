#include "comm/node_link.h"

#include <sys/socket.h>

#include <thread>

#include "base/file.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Kind = Message::Kind;

namespace {

// Node 0's link to one other, and that one's to it.
struct Linked {
  UniqueFd raw;
  NodeLink hub{{}}, node{{}};
  Linked() {
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    std::vector<LineChannel> of_hub(2), of_node;
    of_hub[1] = LineChannel(UniqueFd(ends[0]), 1024);
    raw = UniqueFd(dup(ends[1]));
    of_node.emplace_back(UniqueFd(ends[1]), 1024);
    hub = NodeLink(std::move(of_hub));
    node = NodeLink(std::move(of_node));
  }
};

}  // namespace

TEST_CASE("messages between launchers arrive as they were sent") {
  Linked linked;
  linked.hub.send_all({.kind = Kind::kInterrupt, .now = true});
  linked.hub.send(1, {.kind = Kind::kOver, .verdict = {Blame::kOwnError, 2, "rank 1 failed: \"x\"\n"}});
  const auto got = linked.node.receive();
  REQUIRE(got.size() == 2);
  CHECK(got[0].node == 0);
  CHECK(got[0].message.kind == Kind::kInterrupt);
  CHECK(got[0].message.now);
  CHECK(got[1].message.kind == Kind::kOver);
  CHECK(got[1].message.verdict.blame == Blame::kOwnError);
  CHECK(got[1].message.verdict.code == 2);
  CHECK(got[1].message.verdict.text == "rank 1 failed: \"x\"\n");
  CHECK(linked.node.receive().empty());
}

TEST_CASE("rows of a thousand ranks go through, both sides reading and writing in turns") {
  Linked linked;
  const std::vector<std::string> rows(1024, std::string(200, 'r'));
  linked.node.send(0, {.kind = Kind::kStanding, .rows = rows});
  std::vector<NodeLink::Received> got;
  for (int i = 0; i < 1000 && got.empty(); ++i) {
    got = linked.hub.receive();
    linked.node.receive();
  }
  REQUIRE(got.size() == 1);
  CHECK(got[0].node == 1);
  CHECK(got[0].message.rows == rows);
}

TEST_CASE("a message to all leaves one out") {
  Linked linked;
  linked.hub.send_all({.kind = Kind::kDown}, 1);
  CHECK(linked.node.receive().empty());
}

TEST_CASE("the end of a connection is told once, after what was said before") {
  Linked linked;
  linked.node.send(0, {.kind = Kind::kEnd, .verdict = {.code = 130}});
  linked.node = NodeLink({});
  linked.raw = {};
  const auto got = linked.hub.receive();
  REQUIRE(got.size() == 2);
  CHECK(got[0].message.verdict.code == 130);
  CHECK(got[1].message.kind == Kind::kLost);
  CHECK(got[1].message.text == "the connection was closed");
  CHECK(linked.hub.receive().empty());
}

TEST_CASE("what is no message ends the connection") {
  for (const std::string line : {R"({"type":"nothing"})", R"({"type":"end"})", "[]", "x", ""}) {
    CHECK_FALSE(read_message(line));
    Linked linked;
    ::send(linked.raw.get(), (line + "\n").data(), line.size() + 1, 0);
    const auto got = linked.hub.receive();
    REQUIRE(got.size() == 1);
    CHECK(got[0].message.kind == Kind::kLost);
  }
  CHECK_FALSE(read_message(R"({"type":"end","blame":9,"code":0,"verdict":""})"));
  CHECK_FALSE(read_message(R"({"type":"end","blame":0,"code":-1,"verdict":""})"));
}
