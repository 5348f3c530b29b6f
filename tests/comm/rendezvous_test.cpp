#include "comm/rendezvous.h"

#include <unistd.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/store.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Catch::Contains;
using std::chrono::seconds;

TEST_CASE("a rank that is started twice is an error of the second process, which names both") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (int rank = 0; rank < 3; ++rank) claim_rank(*store, {.rank = rank, .world_size = 3});
  const std::string process = "process " + std::to_string(getpid()) + " on " + host_name();
  CHECK_THAT(test::error_text([&] { claim_rank(*store, {.rank = 1, .world_size = 3}); }),
             Contains("rank 1 was started twice: " + process + " has it already, and this is " + process));
}

TEST_CASE("numbers of processes that differ from rank 0's are named") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto compare = [&](int rank, int world_size, int local_size) {
    require_same_shape(*store, {.rank = rank, .world_size = world_size, .local_size = local_size},
                       seconds(1));
  };
  compare(0, 4, 2);
  compare(1, 4, 2);
  CHECK_THAT(test::error_text([&] { compare(2, 3, 1); }),
             Contains("rank 0 was started as one of 4 processes, 2 a machine, and rank 2, process ") &&
                 Contains("as one of 3 processes, 1 a machine"));
  CHECK_THAT(test::error_text([&] { compare(2, 4, 1); }), Contains("4 processes, 1 a machine"));
}

TEST_CASE("a rank's name has its machine where there are several") {
  CHECK(rank_name(17, "node3") == "rank 17 on node3");
  CHECK(rank_name(0, "") == "rank 0");
}
