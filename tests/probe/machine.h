#pragma once

#include <string>
#include <vector>

#include "probe/checks.h"

namespace lorikeet::test {

/// The sources of a machine in order: a run on so many GPUs with peer access over PCIe, one process each; 0
/// for a run of one process on the CPU.
inline probe::Sources machine(int gpus) {
  probe::Sources sources;
  sources.needs.ranks = gpus == 0 ? 1 : gpus;
  sources.needs.threads = 2;
  sources.build = {.cuda = 13000, .architectures = {"80-real", "90a-real"}};
  sources.cpu = {.allowed = 64, .quota = {}};
  sources.network.interfaces.emplace({probe::NetworkInterface{"eth0", true}, {"ib0", true}, {"lo", true}});
  sources.shared_memory = probe::SharedMemoryFacts{std::uint64_t{32} << 30, std::uint64_t{32} << 30};
  sources.output = {.folder = "runs/mine", .free_bytes = std::uint64_t{1} << 40};
  sources.gpus.driver_cuda = 13000;
  sources.gpus.offered = static_cast<std::size_t>(gpus);
  sources.gpus.start_code = 0;
  for (int i = 0; i < gpus; ++i) {
    const device::PciAddress pci{0, static_cast<unsigned>(i + 1), 0, 0};
    const std::string uuid = "GPU-0000000" + std::to_string(i);
    sources.needs.devices.push_back({"NVIDIA Test 100", 80'000'000'000, 9, 0, uuid, pci});
    device::GpuInfo gpu;
    gpu.nvml_index = static_cast<unsigned>(i);
    gpu.pci = pci;
    gpu.name = "NVIDIA Test 100";
    gpu.uuid = uuid;
    gpu.compute_major = 9;
    gpu.compute_minor = 0;
    gpu.pcie_width = gpu.pcie_width_max = 16;
    gpu.ecc_errors = {0, 0, 0, 0};
    gpu.throttle_reasons.emplace();
    sources.gpus.inventory.gpus.push_back(gpu);
    sources.gpus.topology.gpus.push_back({.label = "GPU" + std::to_string(i)});
    sources.gpus.visible.devices.push_back({static_cast<std::size_t>(i), {}});
    sources.gpus.used.push_back(static_cast<std::size_t>(i));
    sources.gpus.pci.push_back({});
  }
  const auto count = static_cast<std::size_t>(gpus);
  sources.gpus.topology.links.assign(
      count, std::vector<device::Link>(count, {.kind = device::LinkKind::kPix, .p2p = true}));
  if (gpus == 0) sources.gpus.inventory.absent = "there is no NVIDIA driver";
  return sources;
}

inline void set(probe::Sources& sources, const std::string& name, const std::string& value) {
  sources.variables[name] = {value, ""};
}

/// All GPUs' links become these.
inline void link_all(probe::Sources& sources, const device::Link& link) {
  for (auto& row : sources.gpus.topology.links) row.assign(row.size(), link);
}

/// An active port.
inline probe::FabricPort port(const std::string& adapter, bool infiniband = true) {
  return {.adapter = adapter, .port = "1", .driver = "mlx5_core", .active = true, .infiniband = infiniband};
}

/// A machine with an active InfiniBand adapter that programs can use.
inline void add_infiniband(probe::Sources& sources) {
  sources.network.fabric = {port("mlx5_0"), port("mlx5_1")};
  sources.network.verbs_devices = sources.network.verbs_library = true;
}

/// What the check of this name says when all checks run.
inline probe::Findings said(const probe::Sources& sources, const std::string& check) {
  probe::Findings found;
  for (const probe::Finding& finding : probe::run_checks(sources, /*with_well=*/true)) {
    if (finding.check == check) found.push_back(finding);
  }
  return found;
}

/// "warning: <sentence> [<command>]" of the one thing that a check says; "" when it isn't made.
inline std::string only(const probe::Sources& sources, const std::string& check) {
  const probe::Findings found = said(sources, check);
  if (found.empty()) return "";
  if (found.size() > 1) return std::to_string(found.size()) + " findings";
  return std::string(probe::name_of(found[0].severity)) + ": " + found[0].sentence + " [" + found[0].command +
         "]";
}

}  // namespace lorikeet::test
