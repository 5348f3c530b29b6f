#include "device/topology.h"

#include <filesystem>

#include "base/file.h"
#include "device/fake_nvml.h"
#include "device/fixtures.h"
#include "device/nics.h"
#include "device/topology_tree.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::FakeCard;
using test::FakeNvml;
namespace fs = std::filesystem;

namespace {

Topology read(FakeNvml& nvml) {
  const auto session = nvml.session();
  return read_topology(*session, read_inventory(*session));
}

// A machine's /sys: each device a folder below its bridges, and where the kernel names it.
class FakeSys {
 public:
  void add(const std::string& below, const std::string& name, int node, const std::string& nic = "") {
    const fs::path real = folder_ / ("devices/" + below + "/" + name);
    fs::create_directories(real);
    write_file_atomic(real / "numa_node", std::to_string(node) + "\n");
    link(real, folder_ / "bus/pci/devices", name);
    if (nic.empty()) return;
    fs::create_directories(folder_ / ("class/infiniband/" + nic));
    fs::create_directory_symlink(real, folder_ / ("class/infiniband/" + nic + "/device"));
  }
  const fs::path& path() const { return folder_.path(); }

 private:
  static void link(const fs::path& real, const fs::path& folder, const std::string& name) {
    fs::create_directories(folder);
    fs::create_directory_symlink(real, folder / name);
  }
  test::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("links come from NVML's levels") {
  FakeNvml nvml;
  for (unsigned bus = 1; bus <= 6; ++bus) nvml.cards.push_back(FakeCard{.bus = bus});
  nvml.levels = {{{1, 2}, 10}, {{1, 3}, 20}, {{1, 4}, 30}, {{1, 5}, 40}};
  const Topology topology = read(nvml);
  REQUIRE(topology.gpus.size() == 6);
  std::string labels;
  for (const Link& link : topology.links[0]) labels += link.label() + " ";
  CHECK(labels == "X PIX PXB PHB NODE SYS ");
  CHECK(topology.links[4][0] == topology.links[0][4]);
  CHECK(topology.links[0][1].p2p == true);
  CHECK(topology.gpus[0].pcie_generation == 4);
  CHECK(topology.notes.empty());
}

TEST_CASE("NVLinks are counted: those to the other GPU, or those to switches") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.bus = 1, .nvlink_peers = {2, 2, 3}}, FakeCard{.bus = 2, .nvlink_peers = {1, 1}},
                FakeCard{.bus = 3, .nvlink_peers = {1}, .nvlink_version = 5}};
  const Topology direct = read(nvml);
  CHECK(direct.links[0][1].label() == "NV2");
  CHECK(direct.links[0][2].label() == "NV1");
  CHECK(direct.links[1][2].label() == "SYS");
  CHECK(direct.gpus[0].nvswitch == false);
  CHECK(direct.gpus[2].nvlink_gb_per_second == 14.0625);

  nvml.cards = {FakeCard{.bus = 1, .nvlink_peers = {0, 0, 0}}, FakeCard{.bus = 2, .nvlink_peers = {0, 0}}};
  const Topology switched = read(nvml);
  CHECK(switched.links[0][1].label() == "NV2");
  CHECK(switched.gpus[0].nvswitch == true);
}

TEST_CASE("links to a switch that a virtual machine isn't shown count as links to one") {
  constexpr unsigned kUntold = 255;
  FakeNvml nvml;
  nvml.cards = {
      FakeCard{.bus = 1, .nvlink_peers = {0, 0}, .nvlink_switch_type = kUntold},
      FakeCard{.bus = 2, .nvlink_peers = {0, 0}, .fails = {{"nvlink_type", 3}, {"nvlink_remote", 3}}}};
  const Topology topology = read(nvml);
  CHECK(topology.links[0][1].label() == "NV2");
  CHECK(topology.gpus[0].nvswitch == true);
  // The GPU whose address it has is the peer, whatever the type says.
  nvml.cards = {FakeCard{.bus = 1, .nvlink_peers = {2}, .fails = {{"nvlink_type", 3}}},
                FakeCard{.bus = 2, .nvlink_peers = {1}}};
  CHECK(read(nvml).links[0][1].label() == "NV1");
  CHECK(read(nvml).gpus[0].nvswitch == false);
}

TEST_CASE("a link whose state isn't told doesn't hide those after it") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.bus = 1, .nvlink_peers = {0, 0, 0}}, FakeCard{.bus = 2, .nvlink_peers = {0, 0, 0}}};
  auto calls = nvml.calls();
  const auto state = calls.nvlink_state;
  calls.nvlink_state = [&](nvml::Handle card, unsigned link, unsigned* active) {
    return link == 1 ? 999 : state(card, link, active);
  };
  std::string why;
  const auto session = nvml::Session::open(calls, why);
  const Topology topology = read_topology(*session, read_inventory(*session));
  CHECK(topology.links[0][1].label() == "NV2");
}

TEST_CASE("a link that NVML doesn't tell is unknown and noted; peer access that it doesn't tell is empty") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.bus = 1}, FakeCard{.bus = 2}};
  nvml.fails = {{"common_ancestor", 3}, {"p2p_status", 3}};
  const Topology topology = read(nvml);
  CHECK(topology.links[0][1].label() == "?");
  CHECK_FALSE(topology.links[0][1].p2p);
  REQUIRE(topology.notes.size() == 1);
  CHECK_THAT(topology.notes[0], Contains("between GPU0 and GPU1 isn't known: Not Supported"));
  nvml.fails = {};
  nvml.levels = {{{1, 2}, 35}};
  nvml.p2p = 2;
  CHECK_THAT(read(nvml).notes.at(0), Contains("level 35 is not a known one"));
  CHECK(read(nvml).links[0][1].p2p == false);
}

TEST_CASE("a GPU that vanishes between inventory and topology leaves its links unknown") {
  FakeNvml nvml;
  nvml.cards = {FakeCard{.bus = 1}, FakeCard{.bus = 2}, FakeCard{.bus = 3}};
  const auto session = nvml.session();
  const Inventory inventory = read_inventory(*session);
  nvml.cards[1].fails["handle"] = 15;
  const Topology topology = read_topology(*session, inventory);
  CHECK(topology.links[0][1].label() == "?");
  CHECK(topology.links[0][2].label() == "SYS");
  CHECK(topology.notes.size() == 2);
}

TEST_CASE("NICs are placed by the kernel's tree of PCI devices") {
  FakeSys sys;
  const std::string bridge = "pci0000:40/0000:40:01.1", upper = bridge + "/0000:41:00.0";
  sys.add(upper + "/0000:42:00.0", "0000:43:00.0", 0);            // the GPU, behind a switch
  sys.add(upper + "/0000:42:01.0", "0000:44:00.0", 0, "mlx5_0");  // the same switch
  sys.add(upper + "/0000:42:02.0/0000:45:00.0/0000:46:00.0", "0000:47:00.0", 0, "mlx5_1");  // one behind it
  sys.add("pci0000:40/0000:40:03.1", "0000:48:00.0", 0, "mlx5_2");  // the same host bridge
  sys.add("pci0000:60/0000:60:01.1", "0000:61:00.0", 0, "mlx5_3");  // the same NUMA node
  sys.add("pci0000:c0/0000:c0:01.1", "0000:c1:00.0", 1, "mlx5_10");
  Topology topology;
  topology.gpus.push_back({.label = "GPU0", .bus_id = "00000000:43:00.0"});
  topology.gpus.push_back({.label = "GPU1"});
  topology.links = {{Link{LinkKind::kSelf, 0, {}}, Link{}}, {Link{}, Link{LinkKind::kSelf, 0, {}}}};
  add_nics(topology, sys.path());
  REQUIRE(topology.nics.size() == 5);
  CHECK(topology.nics[4].name == "mlx5_10");
  CHECK(topology.nics[4].label == "NIC4");
  std::string labels;
  for (std::size_t nic = 2; nic < 7; ++nic) labels += topology.links[0][nic].label() + " ";
  CHECK(labels == "PIX PXB PHB NODE SYS ");
  CHECK(topology.links[1][2].label() == "?");  // a GPU without address
  CHECK(topology.links[6][6].label() == "X");
  CHECK(topology.links[2][0] == topology.links[0][2]);
}

TEST_CASE("a machine without NICs has none") {
  const test::TemporaryFolder sys;
  Topology topology;
  add_nics(topology, sys.path());
  CHECK(topology.size() == 0);
}

TEST_CASE("the tree shows NUMA nodes, bridges, switches and NVLink groups") {
  CHECK(format_topology_tree(test::topology_fixture("pix_pairs_two_sockets").topology) ==
        "NUMA node 0 (CPUs 0-31,64-95)\n"
        "  PCIe switch (PIX)\n    GPU0\n    GPU1\n"
        "  PCIe switch (PIX)\n    GPU2\n    GPU3\n"
        "NUMA node 1 (CPUs 32-63,96-127)\n"
        "  PCIe switch (PIX)\n    GPU4\n    GPU5\n"
        "  PCIe switch (PIX)\n    GPU6\n    GPU7\n");
  CHECK(format_topology_tree(test::topology_fixture("phb_only").topology) ==
        "NUMA node not told (CPUs 0-11)\n  PCIe host bridge (PHB)\n    GPU0\n    GPU1\n");
  const std::string bridged = format_topology_tree(test::topology_fixture("bridged_pairs_0_2").topology);
  CHECK_THAT(bridged, Contains("NVLink: GPU0, GPU2 (NV4)\nNVLink: GPU1, GPU3 (NV4)\n"));
  CHECK_THAT(bridged, Contains("GPU0 NVIDIA GeForce RTX 3090\n"));
  const std::string dgx1 = format_topology_tree(test::topology_fixture("dgx1_cube_mesh").topology);
  CHECK_THAT(dgx1, Contains("not each with each, up to NV2"));
  CHECK_THAT(
      dgx1,
      Contains("  PCIe host bridge (PHB)\n    PCIe switch (PIX)\n      GPU0\n      GPU1\n      mlx5_0\n"));
  const std::string sys = format_topology_tree(test::topology_fixture("all_sys_two_sockets").topology);
  CHECK_THAT(sys, Contains("NUMA node 1 (CPUs 0-55)\n  GPU0\n  GPU1\n  GPU2\n"));
  CHECK_THAT(sys, Contains("  PCIe host bridge (PHB)\n    GPU6\n    NIC0 mlx5_bond_0\n"));
}
