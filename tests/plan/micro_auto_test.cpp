#include "plan/micro_auto.h"

#include "support/catch.h"

using lorikeet::plan::automatic_micro_tokens;

TEST_CASE("the usual number is halved until it fits") {
  const auto at_most = [](std::int64_t limit) {
    return [limit](std::int64_t tokens) { return tokens <= limit; };
  };
  CHECK(automatic_micro_tokens(8192, 100, at_most(10000)) == 8192);
  CHECK(automatic_micro_tokens(8192, 100, at_most(8191)) == 4096);
  CHECK(automatic_micro_tokens(8192, 100, at_most(1500)) == 1024);
}

TEST_CASE("a micro-batch that the longest row fills, or that is small already, is not halved further") {
  const auto never = [](std::int64_t) { return false; };
  CHECK(automatic_micro_tokens(8192, 3000, never) == 2048);
  CHECK(automatic_micro_tokens(8192, 100, never) == 512);
  CHECK(automatic_micro_tokens(2048, 4000, never) == 2048);
}
