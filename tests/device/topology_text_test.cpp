#include "device/topology_text.h"

#include "device/fixtures.h"
#include "device/number_list.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::topology_fixture;

namespace {

const std::string kTwo =
    "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
    "GPU0     X      PIX     0-11            0\n"
    "GPU1    PIX      X      0-11            0\n";

std::string error_of(const std::string& text) {
  return test::error_text([&] { parse_topology_text(text, "saved.txt"); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

std::string label(const Topology& topology, std::size_t i, std::size_t j) {
  return topology.links[i][j].label();
}

}  // namespace

TEST_CASE("every fixture is read: its devices, X on the diagonal, and the same in both directions") {
  const auto fixtures = test::all_topology_fixtures();
  CHECK(fixtures.size() >= 14);
  for (const auto& fixture : fixtures) {
    INFO(fixture.name);
    const Topology& topology = fixture.topology;
    CHECK(topology.gpus.size() == static_cast<std::size_t>(fixture.expected.find("gpus")->integer()));
    CHECK(topology.nics.size() == static_cast<std::size_t>(fixture.expected.find("nics")->integer()));
    for (std::size_t i = 0; i < topology.size(); ++i) {
      CHECK(label(topology, i, i) == "X");
      for (std::size_t j = 0; j < topology.size(); ++j) CHECK(topology.links[i][j] == topology.links[j][i]);
    }
  }
}

TEST_CASE("what is printed of a fixture reads back equal") {
  for (const auto& fixture : test::all_topology_fixtures()) {
    INFO(fixture.name);
    const Topology again = parse_topology_text(format_topology_text(fixture.topology), "printed");
    CHECK(again.links == fixture.topology.links);
    for (std::size_t i = 0; i < again.gpus.size(); ++i) {
      CHECK(again.gpus[i].cpus == fixture.topology.gpus[i].cpus);
      CHECK(again.gpus[i].numa_nodes == fixture.topology.gpus[i].numa_nodes);
    }
    for (std::size_t i = 0; i < again.nics.size(); ++i)
      CHECK(again.nics[i].name == fixture.topology.nics[i].name);
  }
}

TEST_CASE("columns set by blanks, with NICs by name and no NUMA column") {
  const Topology topology = topology_fixture("dgx1_cube_mesh").topology;
  CHECK(label(topology, 0, 3) == "NV2");
  CHECK(label(topology, 0, 5) == "SYS");
  CHECK(label(topology, 2, 9) == "PIX");
  CHECK(topology.nics[3].name == "mlx5_3");
  CHECK(format_number_list(topology.gpus[7].cpus) == "20-39,60-79");
  CHECK(topology.gpus[7].numa_nodes.empty());
}

TEST_CASE("close-set columns") {
  const Topology topology = topology_fixture("bridged_pairs_0_1").topology;
  CHECK(label(topology, 2, 3) == "NV4");
  CHECK(format_number_list(topology.gpus[3].cpus) == "0-23");
  CHECK(topology.gpus[3].numa_nodes == std::vector{0});
}

TEST_CASE("columns set by tabs, with terminal escapes and a legend of NICs") {
  const Topology topology = topology_fixture("nvswitch_8_nics").topology;
  CHECK(topology.gpus[0].label == "GPU0");
  CHECK(label(topology, 0, 7) == "NV18");
  CHECK(label(topology, 7, 15) == "PIX");
  CHECK(topology.nics[7].name == "mlx5_7");
  CHECK(format_number_list(topology.gpus[4].cpus) == "48-95,144-191");
  CHECK(topology.gpus[4].numa_nodes == std::vector{1});
  CHECK_FALSE(topology.gpus[4].memory_numa_node);
}

TEST_CASE("empty affinity cells are told apart from their neighbours by where they stand") {
  const Topology container = topology_fixture("container_empty_cells").topology;
  CHECK(container.gpus[0].cpus.empty());
  CHECK(container.gpus[0].numa_nodes.empty());
  const std::string numa_alone =
      "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
      "GPU0\t X \tPHB\t\t\t1\t\tN/A\n"
      "GPU1\tPHB\t X \t0-7\t\t\t\t2\n";
  const Topology topology = parse_topology_text(numa_alone, "tabs");
  CHECK(topology.gpus[0].cpus.empty());
  CHECK(topology.gpus[0].numa_nodes == std::vector{1});
  CHECK(topology.gpus[1].cpus.size() == 8);
  CHECK(topology.gpus[1].numa_nodes.empty());
  CHECK(topology.gpus[1].memory_numa_node == 2);
}

TEST_CASE("the list of nvidia-smi -L before the matrix gives models, UUIDs and MIG") {
  const Topology topology = topology_fixture("mig_beside_whole_cards").topology;
  CHECK(topology.gpus[0].model == "NVIDIA A100-SXM4-80GB");
  CHECK(topology.gpus[1].uuid == "GPU-00000001-1111-2222-3333-444455556666");
  CHECK(topology.gpus[0].mig == true);
  CHECK(topology.gpus[1].mig == false);
  CHECK_FALSE(topology_fixture("phb_only").topology.gpus[0].mig);
}

TEST_CASE("the list of nvidia-smi -L may stand behind the matrix, and one of another machine is noted") {
  const std::string list =
      "\nGPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-a)\nGPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-b)\n";
  const Topology topology = parse_topology_text(kTwo + list, "t");
  CHECK(topology.gpus[1].model == "NVIDIA GeForce RTX 3090");
  CHECK(topology.gpus[1].uuid == "GPU-b");
  CHECK(topology.notes.empty());
  const Topology other = parse_topology_text("GPU 0: NVIDIA L4 (UUID: GPU-a)\n" + kTwo, "t");
  REQUIRE(other.notes.size() == 1);
  CHECK_THAT(other.notes[0], Contains("the list of GPUs has 1, the matrix 2"));
}

TEST_CASE("prompts, blank lines, carriage returns and the legend of classes are passed over") {
  const std::string text = "$ nvidia-smi topo -m\n\n" + kTwo + "\nLegend:\n\n  X    = Self\n  PIX  = near\n";
  CHECK(label(parse_topology_text(text, "t"), 0, 1) == "PIX");
  CHECK(label(parse_topology_text(replaced(kTwo, "0\nGPU1", "0\r\n\nGPU1"), "t"), 0, 1) == "PIX");
}

TEST_CASE("a link that isn't told is unknown; the name of old drivers for SYS is known") {
  CHECK(parse_topology_text(replaced(replaced(kTwo, "PIX", "N/A"), "PIX", "N/A"), "t").links[0][1].kind ==
        LinkKind::kUnknown);
  CHECK(label(parse_topology_text(replaced(replaced(kTwo, "PIX", "SOC"), "PIX", "SOC"), "t"), 0, 1) == "SYS");
}

TEST_CASE("a malformed matrix is one error with its line") {
  CHECK_THAT(error_of(""), Contains("saved.txt: expected the matrix"));
  CHECK_THAT(error_of("nvidia-smi: command not found\n"), Contains("expected the matrix"));
  CHECK_THAT(error_of(replaced(kTwo, "PIX", "PXI")),
             Contains("line 2: 'PXI' in column 'GPU1' is no link class"));
  CHECK_THAT(error_of(replaced(kTwo, "PIX", "NV0")), Contains("'NV0'"));
  CHECK_THAT(error_of(replaced(kTwo, "PIX", "NV9999999999")), Contains("no link class"));
  CHECK_THAT(error_of(replaced(kTwo, "PIX", "PHB")),
             Contains("line 3: 'GPU1' to 'GPU0' is PIX, and back it is PHB (line 2)"));
  CHECK_THAT(error_of(replaced(kTwo, " X ", "PIX")), Contains("X stands on the diagonal"));
  CHECK_THAT(error_of(kTwo.substr(0, kTwo.find("GPU1    PIX"))), Contains("expected a row for 'GPU1'"));
  CHECK_THAT(error_of(replaced(kTwo, "\nGPU1", "\nGPU2")),
             Contains("line 3: expected row 'GPU1', got 'GPU2'"));
  CHECK_THAT(error_of("  GPU0 GPU1\nGPU0 X\nGPU1 PIX X\n"),
             Contains("line 2: row 'GPU0' has 1 links, expected 2"));
  CHECK_THAT(error_of(replaced(kTwo, "0-11            0", "0-11   0   1")), Contains("at most 2 cells"));
  CHECK_THAT(error_of(replaced(kTwo, "0-11", "11-0")), Contains("'11-0' under 'CPU Affinity' is no list"));
  CHECK_THAT(error_of("  GPU0 GPU0\n"), Contains("heads two columns"));
  CHECK_THAT(error_of("  GPU0 NIC0 GPU1\n"), Contains("behind a NIC's"));
  CHECK_THAT(error_of(replaced(kTwo, "PIX", "\x1b]0;x")), Contains("\\x1b]0;x"));
  CHECK_THAT(error_of("  GPU0 \x1b\x1b[m[31m\n"), Contains("line 1: '\\x1b[31m' is no name of a device"));
}

TEST_CASE("a matrix too large is refused before it is read") {
  std::string header;
  for (int i = 0; i < 65; ++i) header += " GPU" + std::to_string(i);
  CHECK_THAT(error_of(header + "\n"), Contains("at most 64 devices"));
  CHECK_THAT(error_of(std::string((1 << 20) + 1, ' ')), Contains("at most 1 MiB"));
}

TEST_CASE("every beginning of a matrix, and every one with a byte changed, is read or refused in words") {
  const std::string whole = read_file(test::topology_folder() / "container_empty_cells.txt");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char byte : {'\0', '\x1b', '\t', '9', 'X', '\xff'}) {
      std::string text = whole;
      text[i] = byte;
      for (const std::string& input : {text, text.substr(0, i)})
        test::error_text([&] { parse_topology_text(input, "t"); });  // another exception would fail the test
    }
  }
}
