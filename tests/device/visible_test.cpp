#include "device/visible.h"

#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;

namespace {

Inventory three() {
  Inventory inventory;
  for (unsigned i = 0; i < 3; ++i) {
    GpuInfo gpu;
    gpu.name = "Card " + std::string(1, static_cast<char>('A' + i));
    gpu.uuid = i == 2 ? "GPU-77aa0000-0000" : "GPU-1234" + std::to_string(i) + "fff-0000";
    gpu.pci = PciAddress{0, 0x41 + 0x40 * i, 0, 0};
    inventory.gpus.push_back(gpu);
  }
  inventory.gpus[2].mig = true;
  inventory.gpus[2].mig_devices = {{.uuid = "MIG-aaaa", .name = "1g.10gb"}, {.uuid = "MIG-bbbb"}};
  return inventory;
}

std::vector<VisibleDevice> devices(const char* setting) {
  return visible_devices(three(), std::string(setting)).devices;
}
std::string stopped(const char* setting) { return visible_devices(three(), std::string(setting)).stopped; }
VisibleDevice gpu(std::size_t i) { return {i, {}}; }
using List = std::vector<VisibleDevice>;

}  // namespace

TEST_CASE("without CUDA_VISIBLE_DEVICES all GPUs are visible, with an empty one none") {
  CHECK(visible_devices(three(), std::nullopt).devices == List{gpu(0), gpu(1), gpu(2)});
  CHECK(devices("").empty());
  CHECK(stopped("").empty());
}

TEST_CASE("entries are numbers, beginnings of UUIDs and MIG slices, in the order of the list") {
  CHECK(devices("2,0") == List{gpu(2), gpu(0)});
  CHECK(devices(" 1 , 0 ") == List{gpu(1), gpu(0)});
  CHECK(devices("GPU-12341,GPU-77") == List{gpu(1), gpu(2)});
  CHECK(devices("GPU-77AA") == List{gpu(2)});
  CHECK(devices("MIG-b") == List{{2, 1}});
}

TEST_CASE("the first entry that names nothing ends the list, and is told") {
  CHECK(devices("0,2,-1,1") == List{gpu(0), gpu(2)});
  CHECK_THAT(stopped("0,2,-1,1"), Contains("'-1'"));
  CHECK(devices("0,3,1") == List{gpu(0)});
  CHECK_THAT(stopped("0,3,1"), Contains("'3' is above the last of 3 GPUs"));
  CHECK(devices("GPU-1234").empty());
  CHECK_THAT(stopped("GPU-1234"), Contains("fits 2 devices"));
  CHECK_THAT(stopped("GPU-9"), Contains("is no device here"));
  CHECK(devices("1,1") == List{gpu(1)});
  CHECK_THAT(stopped("1,1"), Contains("named twice"));
  CHECK(devices("NoDevFiles").empty());
  CHECK_THAT(stopped("MIG-GPU-77aa/1/0"), Contains("instance numbers"));
}

TEST_CASE("a visible device names the physical card, and a slice the card that it is of") {
  CHECK(describe(three(), {1, {}}) == "Card B (GPU-12341fff-0000, 00000000:81:00.0)");
  CHECK(describe(three(), {2, 0}) == "1g.10gb (MIG-aaaa) of Card C (GPU-77aa0000-0000, 00000000:C1:00.0)");
}
