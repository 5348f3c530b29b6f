#include "device/pcie_rate.h"

#include "support/catch.h"

using namespace lorikeet::device;

TEST_CASE("sixteen lanes carry what copies over them are known to reach") {
  CHECK(pcie_gb_per_second(3, 16) == Approx(12.6).epsilon(0.01));
  CHECK(pcie_gb_per_second(4, 16) == Approx(25.2).epsilon(0.01));
  CHECK(pcie_gb_per_second(4, 4) == Approx(pcie_gb_per_second(4, 16) / 4));
}

TEST_CASE("what no link can be counts as the nearest that can") {
  CHECK(pcie_gb_per_second(0, 0) == pcie_gb_per_second(1, 1));
  CHECK(pcie_gb_per_second(9, 64) == pcie_gb_per_second(6, 32));
}
