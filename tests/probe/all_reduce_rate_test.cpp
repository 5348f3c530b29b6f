#include "probe/all_reduce_rate.h"

#include "base/error.h"
#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("an all-reduce between threads on the CPU has a rate, whatever its size") {
  for (const int ranks : {2, 3}) {
    const std::vector<at::Device> devices(static_cast<std::size_t>(ranks), at::Device(at::kCPU));
    for (const std::int64_t bytes : {4, 1 << 20}) {
      const double rate = probe::all_reduce_rate(devices, bytes);
      CHECK(rate > 0);
      CHECK(rate < 1e4);  // no machine's memory moves ten terabytes a second
    }
  }
}

TEST_CASE("a device that isn't there is an error, not a hang") {
  const std::vector<at::Device> devices{at::Device(at::kCUDA, 126), at::Device(at::kCUDA, 127)};
  CHECK_THROWS(probe::all_reduce_rate(devices, 4));
}
