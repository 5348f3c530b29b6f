#include "probe/peer_paths.h"

#include "probe/machine.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using Catch::StartsWith;
using device::LinkKind;
using test::link_all;
using test::machine;
using test::only;
using test::set;

TEST_CASE("pairs are counted by how they reach each other, among the GPUs that the run takes") {
  Sources sources = machine(4);
  auto& links = sources.gpus.topology.links;
  links[0][1] = {LinkKind::kNvLink, 4, true};
  links[0][2].p2p = false;
  links[1][2].p2p.reset();
  const PeerPaths all = peer_paths(sources.gpus);
  CHECK(all.pairs == 6);
  CHECK(all.nvlink == 1);
  CHECK(all.none == 1);
  CHECK(all.unknown == 1);
  CHECK(all.pcie == 3);
  sources.gpus.used = {0, 2};
  CHECK(peer_paths(sources.gpus).none == 1);
  CHECK(peer_paths(sources.gpus).pairs == 1);
}

TEST_CASE("NCCL_P2P_DISABLE is judged by what it turns off on this machine") {
  Sources sources = machine(2);
  set(sources, "NCCL_P2P_DISABLE", "0");
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"), StartsWith("ok: "));
  for (const char* no_number : {"true", "yes", "2"}) {
    set(sources, "NCCL_P2P_DISABLE", no_number);
    CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"), StartsWith("warning: ") && Contains("has no effect"));
  }
  set(sources, "NCCL_P2P_DISABLE", "1");
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"),
             StartsWith("warning: ") && Contains("over PCIe; keep it only where"));
  link_all(sources, {LinkKind::kNvLink, 12, true});
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"),
             StartsWith("warning: NCCL_P2P_DISABLE=1: NVLink joins 1 of 1 pairs"));
  link_all(sources, {LinkKind::kPhb, 0, false});
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"), StartsWith("note: ") && Contains("changes nothing"));
  link_all(sources, {LinkKind::kPhb, 0, {}});
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"), StartsWith("note: ") && Contains("doesn't tell"));
}

TEST_CASE("NCCL_P2P_LEVEL=LOC is the same by another name") {
  Sources sources = machine(2);
  set(sources, "NCCL_P2P_LEVEL", "LOC");
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"),
             StartsWith("warning: NCCL_P2P_LEVEL=LOC") && Contains("[unset NCCL_P2P_LEVEL]"));
  set(sources, "NCCL_P2P_LEVEL", "NVL");
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"), StartsWith("ok: "));
}

TEST_CASE("a variable that a file of NCCL's sets is mended there") {
  Sources sources = machine(2);
  sources.variables["NCCL_P2P_DISABLE"] = {"1", "/etc/nccl.conf"};
  CHECK_THAT(only(sources, "NCCL_P2P_DISABLE"),
             Contains("NCCL_P2P_DISABLE=1 (/etc/nccl.conf)") &&
                 Contains("[remove the line NCCL_P2P_DISABLE from /etc/nccl.conf]"));
}

TEST_CASE("an IOMMU that translates is a warning where GPUs copy to each other over PCIe") {
  Sources sources = machine(2);
  sources.gpus.pci = {{"identity", false}, {"identity", false}};
  CHECK_THAT(only(sources, "IOMMU and ACS"), StartsWith("ok: "));
  sources.gpus.pci = {{"DMA-FQ", false}, {"DMA-FQ", false}};
  CHECK_THAT(only(sources, "IOMMU and ACS"),
             StartsWith("warning: the IOMMU translates") && Contains("iommu=pt"));
  link_all(sources, {LinkKind::kNvLink, 12, true});
  CHECK_THAT(only(sources, "IOMMU and ACS"), StartsWith("ok: "));
  link_all(sources, {LinkKind::kSys, 0, false});
  CHECK_THAT(only(sources, "IOMMU and ACS"), StartsWith("ok: "));
}

TEST_CASE("ACS that redirects is a warning; where it can't be read, that is said") {
  Sources sources = machine(2);
  sources.gpus.pci = {{"", true}, {"", false}};
  CHECK_THAT(only(sources, "IOMMU and ACS"), StartsWith("warning: ACS is on"));
  sources.gpus.pci = {{"DMA", {}}, {"DMA", {}}};
  const Findings found = test::said(sources, "IOMMU and ACS");
  REQUIRE(found.size() == 2);
  CHECK(found[1].severity == Severity::kNote);
  CHECK_THAT(found[1].sentence, StartsWith("only root may see"));
}

TEST_CASE("NCCL_SHM_DISABLE is a warning where GPUs have no other way") {
  Sources sources = machine(2);
  set(sources, "NCCL_SHM_DISABLE", "1");
  CHECK_THAT(only(sources, "NCCL_SHM_DISABLE"), StartsWith("note: "));
  set(sources, "NCCL_P2P_DISABLE", "1");
  CHECK_THAT(only(sources, "NCCL_SHM_DISABLE"), StartsWith("warning: "));
  sources.variables.erase("NCCL_P2P_DISABLE");
  link_all(sources, {LinkKind::kPhb, 0, false});
  CHECK_THAT(only(sources, "NCCL_SHM_DISABLE"), StartsWith("warning: ") && Contains("network sockets"));
}

TEST_CASE("a container's 64 MiB of shared memory are too few for two ranks") {
  Sources sources = machine(2);
  constexpr std::uint64_t kMiB = 1 << 20;
  sources.shared_memory = {64 * kMiB, 64 * kMiB};
  CHECK_THAT(
      only(sources, "/dev/shm"),
      StartsWith("warning: 64.0 MiB of 64.0 MiB are free, less than 128.0 MiB") && Contains("--shm-size=1g"));
  sources.shared_memory = {128 * kMiB, 128 * kMiB};
  CHECK_THAT(only(sources, "/dev/shm"), StartsWith("ok: "));
  sources.shared_memory.reset();
  CHECK_THAT(only(sources, "/dev/shm"), StartsWith("warning: there is none"));
}
