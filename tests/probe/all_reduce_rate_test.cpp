#include "probe/all_reduce_rate.h"

#include "support/catch.h"

using namespace lorikeet;
using probe::ProbeProgram;

namespace {

ProbeProgram shell(const std::string& script) { return {"/bin/sh", {"-c", script}}; }

}  // namespace

// tests/recipes/doctor_test.py has the real children.
TEST_CASE("the slowest rank's rate counts") {
  const ProbeProgram program = shell(
      R"(case "$0" in *'"rank":0'* | *'"rank": 0'*) rate=3.5;; *) rate=4;; esac
         echo "{\"figures\": {\"bus_gb_per_second\": $rate}, \"wrong\": []}")");
  CHECK(probe::all_reduce_rate(program, {-1, -1}, 1 << 20) == 3.5);
}

TEST_CASE("an all-reduce that fails, is wrong or gives no answer has no rate") {
  for (const char* script :
       {"exit 1", "true", R"(echo '{"figures": {"bus_gb_per_second": 9}, "wrong": ["a sum is wrong"]}')"}) {
    INFO(script);
    CHECK_FALSE(probe::all_reduce_rate(shell(script), {-1, -1}, 1 << 20));
  }
}
