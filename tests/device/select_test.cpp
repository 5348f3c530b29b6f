#include <cstdlib>

#include "device/device.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::error_text;
using Setting = config::DeviceSetting;

namespace {

CudaDevice card(const char* name, std::uint64_t gigabytes, const char* uuid, unsigned bus) {
  return {name, gigabytes << 30, 8, 0, uuid, PciAddress{0, bus, 0, 0}};
}

const std::vector<CudaDevice> kTwo{card("Card A", 24, "GPU-12340000-aa", 0x41),
                                   card("Card B", 80, "GPU-1234ffff-bb", 0xc1)};
const std::vector<int> kByNumber{0, 1};
const Device kCpu{};
const Device kFirst{Device::Kind::kCuda, 0}, kSecond{Device::Kind::kCuda, 1};

Setting cuda(std::optional<std::int64_t> index = std::nullopt) { return {Setting::Kind::kCuda, index, {}}; }
Setting named(const char* text) { return {Setting::Kind::kCard, {}, text}; }

Device one(const Setting& setting, bool cuda_built = true, const std::vector<CudaDevice>& found = kTwo) {
  return select(setting, cuda_built, found, kByNumber, 1).at(0);
}

std::string error_of(const Setting& setting, int ranks = 1) {
  return error_text([&] { select(setting, true, kTwo, kByNumber, ranks); });
}

}  // namespace

TEST_CASE("auto is the preferred CUDA device, and the CPU where the build or the machine has none") {
  CHECK(one({}) == kFirst);
  CHECK(select({}, true, kTwo, {1, 0}, 1) == std::vector<Device>{kSecond});
  CHECK(one({}, false) == kCpu);
  CHECK(one({}, true, {}) == kCpu);
}

TEST_CASE("cpu is the CPU whatever else is there, for all processes of the machine") {
  CHECK(select({Setting::Kind::kCpu, {}, {}}, true, kTwo, kByNumber, 3) == std::vector<Device>(3));
}

TEST_CASE("cuda is the preferred device, and a number names one") {
  CHECK(one(cuda()) == kFirst);
  CHECK(select(cuda(), true, kTwo, {1, 0}, 1) == std::vector<Device>{kSecond});
  CHECK(one(cuda(1)) == kSecond);
  CHECK(kSecond.name() == "cuda:1");
  CHECK(kCpu.name() == "cpu");
}

TEST_CASE("a UUID, the beginning of one, or a PCI address names a card") {
  CHECK(one(named("GPU-1234ffff-bb")) == kSecond);
  CHECK(one(named("GPU-1234F")) == kSecond);
  CHECK(one(named("41:00.0")) == kFirst);
  CHECK(one(named("00000000:C1:00.0")) == kSecond);
}

TEST_CASE("several processes take a card each, the preferred first") {
  CHECK(select(cuda(), true, kTwo, {1, 0}, 2) == std::vector<Device>{kSecond, kFirst});
  CHECK_THAT(error_of(cuda(), 3), Contains("3 processes run on this machine; here are cuda:0 (Card A"));
  CHECK_THAT(error_of({}, 3), Contains("start at most one for each"));
}

TEST_CASE("a card that is named is one process's") {
  CHECK_THAT(error_of(cuda(1), 2), Contains("'cuda:1' is one device, and 2 processes"));
  CHECK_THAT(error_of(named("41:00.0"), 2), Contains("'41:00.0' is one device, and 2 processes"));
}

TEST_CASE("a CUDA device that is not there is a usage error that lists those that are") {
  const std::string text = error_of(cuda(2));
  CHECK_THAT(text, Contains("[device] 'cuda:2' isn't there"));
  CHECK_THAT(text, Contains("cuda:0 (Card A, GPU-12340000-aa, 00000000:41:00.0), cuda:1 (Card B"));
  CHECK_THAT(text, Contains("device=cpu"));
  CHECK_THAT(error_text([] { one(cuda(), true, {}); }), Contains("no CUDA device is here"));
}

TEST_CASE("a UUID or an address that names no card, several, or isn't one is an error with what is there") {
  CHECK_THAT(error_of(named("GPU-9")), Contains("'GPU-9' isn't there; here are cuda:0 (Card A"));
  CHECK_THAT(error_of(named("GPU-1234")), Contains("fits 2 devices; write more of it"));
  CHECK_THAT(error_of(named("42:00.0")), Contains("isn't there"));
  CHECK_THAT(error_of(named("a:b:c:d")), Contains("is neither a UUID (GPU-...) nor a PCI address"));
  // A card without either is not found by the empty beginning of one.
  const std::vector<CudaDevice> untold{{"Card A", 1}};
  CHECK_THAT(error_text([&] { one(named("GPU-1"), true, untold); }), Contains("isn't there"));
  CHECK_THAT(error_text([&] { one(named("41:00.0"), true, untold); }), Contains("isn't there"));
}

TEST_CASE("the error says what CUDA_VISIBLE_DEVICES is, which may hide the card") {
  setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  CHECK_THAT(error_of(named("GPU-9")), Contains("CUDA_VISIBLE_DEVICES is '0,1'"));
  unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK_THAT(error_of(named("GPU-9")), !Contains("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("a build without CUDA refuses a CUDA device and says how to get one") {
  CHECK_THAT(error_text([] { one(cuda(0), false); }),
             Contains("'cuda:0' needs a build with CUDA") && Contains("-DLORIKEET_CUDA=ON"));
  CHECK_THAT(error_text([] { one(named("GPU-1"), false); }), Contains("'GPU-1' needs a build with CUDA"));
}

TEST_CASE("a device describes itself by name, memory, UUID and address") {
  CHECK_THAT(describe(kSecond, kTwo),
             Catch::StartsWith("cuda:1 (Card B, 80") && Contains(", GPU-1234ffff-bb, 00000000:C1:00.0)"));
  CHECK_THAT(describe(kCpu, {}), Catch::StartsWith("cpu ("));
}

TEST_CASE("listing the driver's devices works with and without a driver, by PCI address") {
  for (const CudaDevice& found : cuda_devices()) {
    CHECK_FALSE(found.name.empty());
    CHECK(found.memory_bytes > 0);
  }
  CHECK(std::string(std::getenv("CUDA_DEVICE_ORDER")) == "PCI_BUS_ID");
}
