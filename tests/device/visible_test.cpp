#include "device/visible.h"

#include <cstdlib>

#include "support/catch.h"
#include "support/error_text.h"

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

std::string resolve_error(const char* setting, const VisibleDevices& visible) {
  return test::error_text([&] { resolve_device(setting, three(), visible); }, ErrorKind::kEnvironment);
}

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

TEST_CASE("a device is found by number, UUID or PCI address among the visible ones") {
  const Inventory inventory = three();
  const VisibleDevices visible = visible_devices(inventory, "2,0");
  CHECK(resolve_device("1", inventory, visible) == 1);
  CHECK(resolve_device("GPU-12340", inventory, visible) == 1);
  CHECK(resolve_device("GPU-77AA0000-0000", inventory, visible) == 0);
  CHECK(resolve_device("00000000:C1:00.0", inventory, visible) == 0);
  CHECK(resolve_device("41:00", inventory, visible) == 1);
  CHECK(resolve_device("MIG-bbbb", inventory, visible_devices(inventory, "0,MIG-bbbb")) == 1);
}

TEST_CASE("a setting that names no device, several or a hidden one is an error that lists what is there") {
  const VisibleDevices visible = visible_devices(three(), "2,0");
  CHECK_THAT(resolve_error("2", visible),
             Contains("'2' isn't there; visible are 0: Card C (GPU-77aa0000-0000"));
  CHECK_THAT(resolve_error("GPU-9", visible), Contains("isn't there"));
  CHECK_THAT(resolve_error("GPU-1", visible), Contains("fits 2 devices; write more of it"));
  CHECK_THAT(resolve_error("81:00.0", visible), Contains("CUDA_VISIBLE_DEVICES hides it"));
  CHECK_THAT(resolve_error("42:00.0", visible), Contains("isn't there"));
  CHECK_THAT(resolve_error("first", visible), Contains("is neither a number"));
  CHECK_THAT(resolve_error("\x1b[2J", visible), Contains("'\\x1b[2J'"));
  const Inventory none = no_inventory("no driver");
  CHECK_THAT(test::error_text([&] { resolve_device("0", none, {}); }, ErrorKind::kEnvironment),
             Contains("no GPU is visible: no driver"));
}

TEST_CASE("a visible device names the physical card, and a slice the card that it is of") {
  CHECK(describe(three(), {1, {}}) == "Card B (GPU-12341fff-0000, 00000000:81:00.0)");
  CHECK(describe(three(), {2, 0}) == "1g.10gb (MIG-aaaa) of Card C (GPU-77aa0000-0000, 00000000:C1:00.0)");
}

TEST_CASE("CUDA is told to count by PCI address, and another order is handed back") {
  setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
  CHECK(order_cuda_by_pci_address() == "FASTEST_FIRST");
  CHECK(std::string(std::getenv("CUDA_DEVICE_ORDER")) == "PCI_BUS_ID");
  CHECK_FALSE(order_cuda_by_pci_address());
  unsetenv("CUDA_DEVICE_ORDER");
  CHECK_FALSE(order_cuda_by_pci_address());
}
