#include "device/cpu_affinity.h"

#include <thread>

#include "support/catch.h"

using namespace lorikeet::device;

TEST_CASE("a thread is bound to the named CPUs that it may run on, and others are not touched") {
  const std::vector<int> all = allowed_cpus();
  REQUIRE_FALSE(all.empty());
  std::vector<int> bound, allowed_then, inherited;
  std::thread([&] {
    bound = bind_to_cpus({all[0], 1'000'000});
    allowed_then = allowed_cpus();
    std::thread([&] { inherited = allowed_cpus(); }).join();
  }).join();
  CHECK(bound == std::vector<int>{all[0]});
  CHECK(allowed_then == bound);
  CHECK(inherited == bound);
  CHECK(allowed_cpus() == all);
}

TEST_CASE("CPUs that the thread may not run on leave it as it is") {
  const std::vector<int> all = allowed_cpus();
  CHECK(bind_to_cpus({1'000'000}).empty());
  CHECK(bind_to_cpus({}).empty());
  CHECK(allowed_cpus() == all);
}
