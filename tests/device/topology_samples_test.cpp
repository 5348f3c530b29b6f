// Real samples, which lie beside the checkout and not in it; what is expected was read off them by eye.
#include "base/file.h"
#include "base/json.h"
#include "device/link_model.h"
#include "device/number_list.h"
#include "device/selection.h"
#include "device/topology_text.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::device;

namespace {

struct Sample {
  const char* file;
  std::size_t gpus, nics;
  std::size_t a, b;  // a pair and its class
  const char* label;
  const char* last_cpus;  // of the last GPU
  const char* last_numa;
  std::size_t count;  // so many of them, and the best set
  GpuSet best;
};

const Sample kSamples[] = {
    {"2x_gpu_nvlink_nv2.txt", 2, 0, 0, 1, "NV2", "0-23", "", 2, {0, 1}},
    {"2x_gpu_phb.txt", 2, 0, 0, 1, "PHB", "0-11", "", 2, {0, 1}},
    {"2x_gtx1080ti_phb.txt", 2, 0, 1, 0, "PHB", "0-11", "", 1, {0}},
    {"4x_a10_sys_2nic.txt", 4, 2, 4, 5, "PIX", "0-127", "0", 2, {0, 1}},
    {"4x_rtx6000ada_2socket_4nic.txt", 4, 4, 2, 7, "NODE", "32-63", "1", 2, {0, 1}},
    {"8x_a100_sxm_nv12.txt", 8, 0, 0, 7, "NV12", "24-47", "1", 4, {0, 1, 2, 3}},
    {"8x_h100_sxm_nv18.txt", 8, 0, 3, 4, "NV18", "52-103", "1", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
    {"8x_h100_sxm_nv18_ht.txt", 8, 0, 3, 4, "NV18", "52-103,156-207", "1", 2, {0, 1}},
    {"8x_rtx6000pro_pix_node_sys_ansi.txt", 8, 0, 5, 4, "PIX", "64-127,192-238", "1", 4, {0, 1, 2, 3}},
    {"8x_v100_dgx1_cube_mesh_4nic.txt", 8, 4, 4, 0, "NV2", "20-39,60-79", "", 4, {0, 1, 2, 3}},
};

}  // namespace

TEST_CASE("what nvidia-smi printed on real machines is read as it stands there") {
  const auto folder = test::shared_data("topo");
  if (!folder) {
    WARN("no ../shared/data/topo: skipped");
    return;
  }
  for (const Sample& sample : kSamples) {
    INFO(sample.file);
    const Topology topology = parse_topology_text(read_file(*folder / sample.file), sample.file);
    REQUIRE(topology.gpus.size() == sample.gpus);
    REQUIRE(topology.nics.size() == sample.nics);
    CHECK(topology.links[sample.a][sample.b].label() == sample.label);
    CHECK(format_number_list(topology.gpus.back().cpus) == sample.last_cpus);
    CHECK(format_number_list(topology.gpus.back().numa_nodes) == sample.last_numa);
    CHECK(best_set(LinkModel(topology), all_gpus(topology), sample.count).gpus == sample.best);
  }
}

TEST_CASE("a matrix of peer access isn't taken for one of links") {
  const auto folder = test::shared_data("topo");
  if (!folder) {
    WARN("no ../shared/data/topo: skipped");
    return;
  }
  for (const char* file : {"p2p_2x_l4_cns.txt", "p2p_8x_h100_ok.txt"})
    CHECK_THAT(test::error_text([&] { parse_topology_text(read_file(*folder / file), file); }),
               Catch::Contains("is no link class"));
}

TEST_CASE(
    "the machines known by facts alone are built from them, and the best pair is what their lesson says") {
  const auto folder = test::shared_data("topo");
  if (!folder) {
    WARN("no ../shared/data/topo: skipped");
    return;
  }
  const Json facts = Json::parse(read_file(*folder / "facts.json"), "facts.json");
  std::size_t read = 0;
  for (const Json& machine : facts.find("machines")->array()) {
    const std::string name = machine.find("name")->string();
    if (!machine.find("complete")->boolean()) continue;
    INFO(name);
    ++read;
    const auto count = static_cast<std::size_t>(machine.find("gpus")->integer());
    Topology topology;
    topology.links.assign(count, std::vector<Link>(count));
    for (std::size_t i = 0; i < count; ++i) {
      topology.gpus.emplace_back().label = "GPU" + std::to_string(i);
      topology.gpus[i].cpus =
          parse_number_list(machine.find("cpu_affinity")->array()[i].string()).value_or(std::vector<int>{});
      const Json& node = machine.find("numa_affinity")->array()[i];
      if (node.is_integer()) topology.gpus[i].numa_nodes = {static_cast<int>(node.integer())};
      topology.links[i][i].kind = LinkKind::kSelf;
      for (std::size_t j = i + 1; j < count; ++j) {
        const std::string pair = std::to_string(i) + "-" + std::to_string(j);
        topology.links[i][j] = topology.links[j][i] =
            *parse_link(machine.find("gpu_links")->find(pair)->string());
      }
    }
    const Topology again = parse_topology_text(format_topology_text(topology), name);
    CHECK(again.links == topology.links);
    const LinkModel model(topology);
    if (name == "5x_mixed_5090_4090") {
      CHECK(best_set(model, all_gpus(topology), 4).gpus == GpuSet{1, 2, 3, 4});
    } else if (name == "4x_rtx3090_nvlinked_pairs") {
      CHECK(best_set(model, all_gpus(topology), 2).gpus == GpuSet{0, 2});
    } else if (name == "8x_pix_pairs_two_sockets") {
      CHECK(best_set(model, all_gpus(topology), 2).gpus == GpuSet{0, 1});
      CHECK(best_set(model, all_gpus(topology), 4).gpus == GpuSet{0, 1, 2, 3});
    } else if (name == "8x_rtx4090_all_sys_2nic") {
      CHECK(best_set(model, all_gpus(topology), 4).gpus == GpuSet{0, 1, 2, 3});
    }
  }
  CHECK(read >= 9);
}
