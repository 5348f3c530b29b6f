#include "device/device.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::error_text;
using Setting = config::DeviceSetting;

namespace {

const std::vector<CudaDevice> kTwo{{"Card A", 24ULL << 30}, {"Card B", 80ULL << 30}};
const Device kCpu{};

Setting cuda(std::optional<std::int64_t> index = std::nullopt) { return {Setting::Kind::kCuda, index}; }

}  // namespace

TEST_CASE("auto is the first CUDA device, and the CPU where the build or the machine has none") {
  const Setting automatic{};
  CHECK(select(automatic, true, kTwo) == Device{Device::Kind::kCuda, 0});
  CHECK(select(automatic, false, kTwo) == kCpu);
  CHECK(select(automatic, true, {}) == kCpu);
}

TEST_CASE("cpu is the CPU whatever else is there") {
  CHECK(select({Setting::Kind::kCpu, std::nullopt}, true, kTwo) == kCpu);
}

TEST_CASE("cuda is the first device, and a number names one") {
  CHECK(select(cuda(), true, kTwo).name() == "cuda:0");
  CHECK(select(cuda(1), true, kTwo).name() == "cuda:1");
  CHECK(kCpu.name() == "cpu");
}

TEST_CASE("a CUDA device that is not there is a usage error that lists those that are") {
  const std::string text = error_text([] { select(cuda(2), true, kTwo); });
  CHECK_THAT(text, Contains("[device] 'cuda:2' isn't there"));
  CHECK_THAT(text, Contains("cuda:0 (Card A), cuda:1 (Card B)"));
  CHECK_THAT(text, Contains("device=cpu"));
  CHECK_THAT(error_text([] { select(cuda(), true, {}); }), Contains("no CUDA device is here"));
}

TEST_CASE("a build without CUDA refuses a CUDA device and says how to get one") {
  CHECK_THAT(error_text([] { select(cuda(0), false, kTwo); }),
             Contains("needs a build with CUDA") && Contains("-DLORIKEET_CUDA=ON"));
}

TEST_CASE("a device describes itself by name and memory") {
  CHECK_THAT(describe({Device::Kind::kCuda, 1}, kTwo), Catch::StartsWith("cuda:1 (Card B, 80"));
  CHECK_THAT(describe(kCpu, {}), Catch::StartsWith("cpu ("));
}

TEST_CASE("listing the driver's devices works with and without a driver") {
  for (const CudaDevice& found : cuda_devices()) {
    CHECK_FALSE(found.name.empty());
    CHECK(found.memory_bytes > 0);
  }
}
