// What stands between the GPUs of one machine: peer access, IOMMU and ACS, shared memory.
#include <algorithm>

#include "base/strings.h"
#include "probe/checks.h"
#include "probe/peer_paths.h"

namespace lorikeet::probe {

PeerPaths peer_paths(const GpuFacts& gpus) {
  PeerPaths paths;
  for (std::size_t i = 0; i < gpus.used.size(); ++i) {
    for (std::size_t j = i + 1; j < gpus.used.size(); ++j) {
      ++paths.pairs;
      if (gpus.used[j] >= gpus.topology.links.size()) {
        ++paths.unknown;
        continue;
      }
      const device::Link& link = gpus.topology.links[gpus.used[i]][gpus.used[j]];
      const bool nvlink = link.kind == device::LinkKind::kNvLink;
      ++(nvlink ? paths.nvlink : !link.p2p ? paths.unknown : *link.p2p ? paths.pcie : paths.none);
    }
  }
  return paths;
}

Findings check_p2p_disable(const Sources& sources) {
  constexpr const char* kName = "NCCL_P2P_DISABLE";
  // The other name of the same choice.
  constexpr const char* kLevel = "NCCL_P2P_LEVEL";
  const Variable* found = find_variable(sources, kName);
  if (switched_on(found) && nccl_number(found) != 1) {
    return {{kName, Severity::kWarning,
             shown(kName, *found) + " has no effect: NCCL reads a number there, and takes 1 alone as yes",
             "export NCCL_P2P_DISABLE=1, or " + drop_command(kName, *found)}};
  }
  const bool by_level = found == nullptr || nccl_number(found) != 1;
  if (by_level) found = find_variable(sources, kLevel);
  if (found == nullptr || (by_level && found->value != "LOC" && found->value != "0")) return {};
  const std::string name = by_level ? kLevel : kName;
  const Variable& variable = *found;
  const PeerPaths paths = peer_paths(sources.gpus);
  const std::string set = shown(name, variable);
  if (paths.nvlink > 0) {
    return {{kName, Severity::kWarning,
             set + ": NVLink joins " + std::to_string(paths.nvlink) + " of " + std::to_string(paths.pairs) +
                 " pairs of these GPUs, and NCCL sends everything through main memory instead",
             drop_command(name, variable)}};
  }
  if (paths.pcie > 0) {
    return {{kName, Severity::kWarning,
             set + ": " + std::to_string(paths.pcie) + " of " + std::to_string(paths.pairs) +
                 " pairs of these GPUs could copy to each other over PCIe; keep it only where such copies go "
                 "wrong or hang (the check 'peer copy' tells)",
             drop_command(name, variable)}};
  }
  if (paths.none == paths.pairs)
    return {{kName, Severity::kNote, set + " changes nothing: these GPUs have no access to each other"}};
  return {
      {kName, Severity::kNote,
       set +
           ": NCCL sends everything through main memory; the driver doesn't tell whether these GPUs could do "
           "without"}};
}

Findings check_iommu(const Sources& sources) {
  constexpr const char* kName = "IOMMU and ACS";
  const GpuFacts& gpus = sources.gpus;
  // NVLink doesn't pass through either.
  if (peer_paths(gpus).pcie == 0) return {};
  Findings found;
  bool translates = false, redirects = false, untold = false;
  for (const std::size_t gpu : gpus.used) {
    if (gpu >= gpus.pci.size()) continue;
    translates = translates || gpus.pci[gpu].iommu_domain.starts_with("DMA");
    redirects = redirects || gpus.pci[gpu].acs_redirects.value_or(false);
    untold = untold || !gpus.pci[gpu].acs_redirects;
  }
  if (translates) {
    found.emplace_back(
        kName, Severity::kWarning,
        "the IOMMU translates what these GPUs send: copies between them over PCIe may hang, be slow "
        "or, rarely, arrive wrong (the check 'peer copy' tells)",
        "boot with iommu=pt or, outside of virtual machines, intel_iommu=off or amd_iommu=off; or "
        "export NCCL_P2P_DISABLE=1");
  }
  if (redirects) {
    found.emplace_back(
        kName, Severity::kWarning,
        "ACS is on in a PCIe bridge above these GPUs: copies between them go up to the CPU and back",
        "switch ACS off in the BIOS, or by setpci in every bridge above them");
  } else if (translates && untold) {
    found.emplace_back(kName, Severity::kNote,
                       "only root may see whether ACS sends copies between GPUs up to the CPU and back",
                       "sudo lorikeet doctor --quick");
  }
  return found;
}

Findings check_shm_disable(const Sources& sources) {
  constexpr const char* kName = "NCCL_SHM_DISABLE";
  const Variable* variable = find_variable(sources, kName);
  if (nccl_number(variable) == 0 || sources.needs.ranks < 2) return {};
  const PeerPaths paths = peer_paths(sources.gpus);
  const bool p2p_off = nccl_number(find_variable(sources, "NCCL_P2P_DISABLE")) == 1;
  const std::size_t direct = p2p_off ? 0 : paths.nvlink + paths.pcie;
  if (direct == paths.pairs && paths.pairs > 0)
    return {{kName, Severity::kNote,
             shown(kName, *variable) + " changes little: all these GPUs have access to each other"}};
  return {
      {kName, Severity::kWarning,
       shown(kName, *variable) +
           ": GPUs without access to each other then talk through network sockets, slower than main memory",
       drop_command(kName, *variable)}};
}

Findings check_shared_memory(const Sources& sources) {
  constexpr const char* kName = "/dev/shm";
  // NCCL takes about 10 MiB for a pair of ranks and channel; Docker's default, 64 MiB in all, is known to
  // fail.
  constexpr std::uint64_t kEachRank = std::uint64_t{64} << 20;
  const int ranks = sources.needs.ranks;
  if (ranks < 2) return {};
  const char* mend = "docker run --ipc=host or --shm-size=1g; elsewhere mount -o remount,size=1g /dev/shm";
  if (!sources.shared_memory)
    return {{kName, Severity::kWarning, "there is none, and the ranks of one machine talk through it", mend}};
  const std::uint64_t needed = kEachRank * static_cast<std::uint64_t>(ranks);
  const SharedMemoryFacts& facts = *sources.shared_memory;
  if (facts.free_bytes >= needed) return {};
  return {{kName, Severity::kWarning,
           format_bytes(facts.free_bytes) + " of " + format_bytes(facts.total_bytes) +
               " are free, less than " + format_bytes(needed) + " for " + std::to_string(ranks) +
               " ranks: NCCL fails to start with 'No space left on device' or a bus error",
           mend}};
}

}  // namespace lorikeet::probe
