#include "device/nvml.h"

#include "device/fake_nvml.h"
#include "device/inventory.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::FakeNvml;

TEST_CASE("a session starts NVML once and stops it when it goes") {
  FakeNvml nvml;
  {
    const auto session = nvml.session();
    REQUIRE(session);
    CHECK(nvml.started == 1);
    CHECK(nvml.stopped == 0);
  }
  CHECK(nvml.stopped == 1);
}

TEST_CASE("a library that refuses to start is no session, and why is told") {
  FakeNvml nvml;
  nvml.fails["init"] = 9;
  std::string why;
  CHECK(nvml::Session::open(nvml.calls(), why) == nullptr);
  CHECK_THAT(why, Contains("refuses to start: Bad (NVML error 9)"));
  CHECK(nvml.stopped == 0);
}

TEST_CASE("a function that the driver's library lacks is an error of that call alone") {
  FakeNvml nvml;
  auto calls = nvml.calls();
  calls.memory = nullptr;
  std::string why;
  const auto session = nvml::Session::open(calls, why);
  REQUIRE(session);
  nvml::Memory memory{};
  nvml::Handle handle = nullptr;
  CHECK(nvml::Session::status(session->calls().memory, handle, &memory) == nvml::kFunctionNotFound);
}

TEST_CASE("this machine's NVML opens or says why not") {
  std::string why;
  const auto session = nvml::open_driver(why);
  if (session == nullptr) {
    CHECK_FALSE(why.empty());
  } else {
    const Inventory inventory = read_inventory(*session);
    CHECK(inventory.absent.empty());
    for (const GpuInfo& gpu : inventory.gpus) CHECK(gpu.name);
  }
}
