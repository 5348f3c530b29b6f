#include "comm/hang_table.h"

#include <thread>

#include "support/catch.h"

using namespace lorikeet::comm;

TEST_CASE("the table of a hang waits for all nodes, and no longer than it may") {
  using std::chrono::milliseconds;
  HangTable table("rank 0 has waited 3 s", 2, milliseconds(200));
  table.add(0, {"node 0 rank 0: training, in all-reduce 7"});
  table.add(7, {"of another run"});
  CHECK_FALSE(table.text());
  SECTION("the last answers") {
    table.add(1, {"node 1 rank 1: training, behind all-reduce 6", "node 1 rank 2: \x1b[2J"});
    CHECK(table.text() ==
          "rank 0 has waited 3 s; the ranks stand here:\n"
          "  node 0 rank 0: training, in all-reduce 7\n"
          "  node 1 rank 1: training, behind all-reduce 6\n"
          "  node 1 rank 2: \\x1b[2J\n");
  }
  SECTION("the last doesn't") {
    std::this_thread::sleep_for(milliseconds(250));
    CHECK(table.text() ==
          "rank 0 has waited 3 s; the ranks stand here:\n"
          "  node 0 rank 0: training, in all-reduce 7\n"
          "  node 1: no answer\n");
  }
}
