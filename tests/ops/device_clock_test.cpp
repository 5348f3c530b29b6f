#include "ops/device_clock.h"

#include <ATen/ATen.h>

#include <chrono>
#include <thread>

#include "support/catch.h"

using lorikeet::ops::DeviceClock;

TEST_CASE("on a CPU a device's clock is the host's") {
  const DeviceClock clock(at::kCPU);
  const auto begin = clock.mark();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto end = clock.mark();
  CHECK_FALSE(end.event);
  CHECK(DeviceClock::seconds_between(begin, end) >= 0.005);
  CHECK(DeviceClock::seconds_between(end, begin) == -DeviceClock::seconds_between(begin, end));
}
