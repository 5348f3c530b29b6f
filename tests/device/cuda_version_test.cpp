#include "device/cuda_version.h"

#include "device/device.h"
#include "support/catch.h"

using namespace lorikeet::device;

TEST_CASE("a machine with a CUDA device has a driver with a version") {
  const auto version = driver_cuda_version();
  if (version) {
    CHECK(*version >= 10000);
    CHECK(*version % 10 == 0);
  } else {
    CHECK(cuda_devices().empty());
  }
}
