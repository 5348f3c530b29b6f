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

TEST_CASE("what is free decides only where a step doesn't fit into it") {
  const auto need = [](std::int64_t tokens) { return 1000 + tokens; };
  const auto choose = [&](std::optional<std::int64_t> of_kind, std::optional<std::int64_t> free) {
    return automatic_micro_tokens(8192, 100, need, of_kind, free);
  };
  // A device with memory for 4,096 tokens, of which others take more and more.
  for (const std::int64_t free : {9000, 8000, 5200, 5096}) {
    CHECK(choose(8000, free).tokens == 4096);
    CHECK(choose(8000, free).of_kind == 4096);
  }
  CHECK(choose(8000, 5095).tokens == 2048);
  CHECK(choose(8000, 5095).of_kind == 4096);
  CHECK(choose({}, 5096).tokens == 4096);
  CHECK(choose({}, 5096).of_kind == 8192);
  CHECK(choose(8000, {}).tokens == 4096);
  CHECK(choose({}, {}).tokens == 8192);
}
