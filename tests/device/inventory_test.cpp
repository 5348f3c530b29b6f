#include "device/inventory.h"

#include "device/fake_nvml.h"
#include "device/inventory_json.h"
#include "device/number_list.h"
#include "device/pci_address.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::FakeCard;
using test::FakeNvml;

namespace {

Inventory read(FakeNvml& nvml) { return read_inventory(*nvml.session()); }

std::string reason_of(const GpuInfo& gpu, const std::string& field) {
  for (const Untold& untold : gpu.untold) {
    if (untold.field == field) return untold.reason;
  }
  return "told";
}

}  // namespace

TEST_CASE("GPUs stand in the order of their PCI addresses, whatever the driver's order is") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.name = "B", .bus = 0xc1}, FakeCard{.name = "A", .bus = 0x41}};
  const Inventory inventory = read(nvml);
  REQUIRE(inventory.gpus.size() == 2);
  CHECK(inventory.gpus[0].name == "A");
  CHECK(inventory.gpus[0].pci->text() == "00000000:41:00.0");
  CHECK(inventory.gpus[0].nvml_index == 1);
  CHECK(inventory.driver_version == "999.01");
}

TEST_CASE("everything that the driver tells is there") {
  FakeNvml nvml;
  FakeCard card;
  card.processes = {{1234, 500, 0, 0}, {7, ~0ULL, 0, 0}};
  card.width = 8;
  card.nvlink_peers = {0, 0};
  card.throttle = 0x1 | 0x4 | 0x40;
  card.ecc_uncorrected = 3;
  card.cpus = 0xff00ff;
  nvml.cards = {card};
  const Inventory inventory = read(nvml);
  REQUIRE(inventory.gpus.size() == 1);
  const GpuInfo& gpu = inventory.gpus[0];
  CHECK(gpu.untold.empty());
  CHECK(gpu.memory_free_bytes == 79'000'000'000);
  REQUIRE(gpu.processes.size() == 2);  // those of graphics are the same here
  CHECK(gpu.processes[0].name == "program");
  CHECK(gpu.processes[0].used_bytes == 500);
  CHECK_FALSE(gpu.processes[1].name);  // it has ended
  CHECK_FALSE(gpu.processes[1].used_bytes);
  CHECK(gpu.compute_major == 9);
  CHECK(format_number_list(gpu.cpus) == "0-7,16-23");
  CHECK(gpu.numa_nodes == std::vector{0});
  CHECK(gpu.pcie_width == 8);
  CHECK(gpu.pcie_generation == 1);
  CHECK(gpu.pcie_generation_max == 4);
  REQUIRE(gpu.nvlinks.size() == 2);
  CHECK(gpu.nvlinks[0].peer == NvLink::Peer::kSwitch);
  CHECK(gpu.nvlinks[0].gb_per_second == 25);
  CHECK(gpu.mig == false);
  CHECK(gpu.ecc_errors.uncorrected == 3);
  CHECK(gpu.throttle_reasons == std::vector<std::string>{"power cap", "thermal (hardware)"});
}

TEST_CASE("a field that the driver refuses is empty with its reason, and the others stay") {
  FakeNvml nvml;
  FakeCard card;
  card.fails = {{"memory", 4}, {"ecc_mode", 3}, {"nvlink_version", 3}};
  card.nvlink_peers = {5};
  nvml.cards = {card};
  const GpuInfo gpu = read(nvml).gpus.at(0);
  CHECK_FALSE(gpu.memory_free_bytes);
  CHECK(reason_of(gpu, "memory") == "Bad (NVML error 4)");
  CHECK_FALSE(gpu.ecc);
  CHECK(reason_of(gpu, "ECC mode") == "Not Supported (NVML error 3)");
  REQUIRE(gpu.nvlinks.size() == 1);
  CHECK_FALSE(gpu.nvlinks[0].gb_per_second);
  CHECK(gpu.name == "NVIDIA Test 100");
  CHECK(reason_of(gpu, "name") == "told");
}

TEST_CASE("a card without NVLink has none, with the driver's reason") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{}};
  const GpuInfo gpu = read(nvml).gpus.at(0);
  CHECK(gpu.nvlinks.empty());
  CHECK(reason_of(gpu, "NVLink") == "Not Supported (NVML error 3)");
}

TEST_CASE("a GPU that is lost at any moment is reported, and the others stay") {
  for (int after = 0; after < 20; ++after) {
    FakeNvml nvml;
    nvml.cards = {FakeCard{.name = "A", .bus = 1}, FakeCard{.name = "B", .bus = 2},
                  FakeCard{.name = "C", .bus = 3}};
    nvml.cards[1].lost_after = after;
    const Inventory inventory = read(nvml);
    INFO("after " << after << " calls");
    REQUIRE(inventory.gpus.size() == 2);
    CHECK(inventory.gpus[1].name == "C");
    REQUIRE(inventory.lost.size() == 1);
    CHECK(inventory.lost[0].nvml_index == 1);
    CHECK(inventory.lost[0].reason == "GPU is lost (NVML error 15)");
    CHECK(inventory.lost[0].description.empty() == (after == 0));
  }
}

TEST_CASE("a GPU that gives no handle is lost, too") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.fails = {{"handle", 15}}}, FakeCard{.bus = 2}};
  const Inventory inventory = read(nvml);
  CHECK(inventory.gpus.size() == 1);
  CHECK(inventory.lost.size() == 1);
}

TEST_CASE("a GPU that this process may not open is neither listed nor lost") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.fails = {{"handle", 4}}}, FakeCard{.bus = 2}};
  const Inventory inventory = read(nvml);
  CHECK(inventory.gpus.size() == 1);
  CHECK(inventory.lost.empty());
  CHECK(inventory.others == 1);
}

TEST_CASE("a GPU that hides its PCI address comes last") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.name = "A", .fails = {{"pci_info", 999}}}, FakeCard{.name = "B", .bus = 9}};
  const Inventory inventory = read(nvml);
  REQUIRE(inventory.gpus.size() == 2);
  CHECK(inventory.gpus[1].name == "A");
  CHECK(inventory.gpus[1].description() == "A (GPU-0000)");
}

TEST_CASE("a driver that can't count its GPUs gives an empty inventory and says so") {
  FakeNvml nvml;
  nvml.fails["count"] = 999;
  const Inventory inventory = read(nvml);
  CHECK(inventory.gpus.empty());
  CHECK_THAT(inventory.absent, Contains("can't count its GPUs: Bad (NVML error 999)"));
}

TEST_CASE("slices of a GPU in MIG mode are listed with UUID and memory") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.mig = true, .slices = {"MIG-1", "MIG-2"}}};
  const GpuInfo gpu = read(nvml).gpus.at(0);
  CHECK(gpu.mig == true);
  REQUIRE(gpu.mig_devices.size() == 2);
  CHECK(gpu.mig_devices[1].uuid == "MIG-2");
  CHECK(gpu.mig_devices[1].memory_total_bytes == 80'000'000'000);
}

TEST_CASE("the inventory's JSON holds what was told, lost and untold") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{}, FakeCard{.bus = 2, .lost_after = 3}};
  const Json json = inventory_json(read(nvml));
  CHECK(json.find("absent")->is_null());
  const Json& gpu = json.find("gpus")->array().at(0);
  CHECK(gpu.find("bus_id")->string() == "00000000:01:00.0");
  CHECK(gpu.find("compute_capability")->string() == "9.0");
  CHECK(gpu.find("pcie")->find("generation_max")->integer() == 4);
  CHECK(gpu.find("untold")->array().at(0).find("field")->string() == "NVLink");
  CHECK(json.find("lost")->array().size() == 1);
  CHECK(inventory_json(no_inventory("no driver")).find("absent")->string() == "no driver");
}

TEST_CASE("PCI addresses are read in every usual form") {
  const PciAddress address{0, 0x41, 0, 0};
  for (const char* text : {"00000000:41:00.0", "0000:41:00.0", "41:00.0", "41:00", "0:41:0"})
    CHECK(parse_pci_address(text) == address);
  CHECK(parse_pci_address("0001:aF:1f.7") == PciAddress{1, 0xaf, 0x1f, 7});
  CHECK(PciAddress{1, 0xaf, 0x1f, 7}.kernel_name() == "0001:af:1f.7");
  for (const char* text :
       {"", "41", "41:", "41:20.0", "1:2:3:4", "g1:00.0", "41:00.8", "100:00:00.0 ", "41:00.0.0"})
    CHECK_FALSE(parse_pci_address(text));
}

TEST_CASE("lists of numbers are read as Linux writes them") {
  CHECK(parse_number_list("0-2,7") == std::vector{0, 1, 2, 7});
  CHECK(format_number_list({0, 1, 2, 7, 9, 10}) == "0-2,7,9-10");
  for (const char* text : {"", "-1", "3-1", "0-2,1-3", "0-99999", "a", "1,,2", "1,", "0-"})
    CHECK_FALSE(parse_number_list(text));
}
