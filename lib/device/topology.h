#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/inventory.h"
#include "device/nvml.h"

namespace lorikeet::device {

/// How two devices are joined, in the words of `nvidia-smi topo -m`, nearest first.
enum class LinkKind {
  kSelf,     ///< X: the same device
  kNvLink,   ///< NV#: a bundle of NVLinks, or as many to a switch that joins both
  kPix,      ///< at most one PCIe bridge
  kPxb,      ///< several PCIe bridges, no host bridge
  kPhb,      ///< one PCIe host bridge
  kNode,     ///< several host bridges of one NUMA node
  kSys,      ///< the interconnect between NUMA nodes
  kUnknown,  ///< N/A, or the driver didn't tell
};

struct Link {
  LinkKind kind = LinkKind::kUnknown;
  int nvlinks = 0;          ///< for kNvLink
  std::optional<bool> p2p;  ///< one card can read and write the other's memory, as the driver says

  bool operator==(const Link&) const = default;
  /// "NV12", "PIX", "X", "?" where unknown.
  std::string label() const;
};

/// Reads a label ("NV12", "PIX", "X", "N/A"), or empty for anything else. NV0 and more than 64 links are
/// none.
std::optional<Link> parse_link(std::string_view label);

struct TopologyGpu {
  std::string label;  ///< "GPU0": its place in the matrix
  std::optional<std::string> model, uuid, bus_id;
  std::optional<std::uint64_t> memory_total_bytes, memory_free_bytes;
  std::vector<int> cpus, numa_nodes;    ///< nearest ones; empty where not told
  std::optional<int> memory_numa_node;  ///< "GPU NUMA ID": where the card's own memory is a NUMA node
  std::optional<bool> mig;
  /// Width in lanes now, and the largest generation: cards at rest lower the generation, not the width.
  std::optional<unsigned> pcie_width, pcie_generation;
  std::optional<double> nvlink_gb_per_second;  ///< of one link, one direction
  std::optional<bool> nvswitch;                ///< its NVLinks end in a switch
};

struct TopologyNic {
  std::string label;  ///< "NIC0", or the interface's name in older layouts
  std::string name;   ///< "mlx5_0"; empty where not told
};

/// The GPUs and network cards of one machine and how each two are joined. links[i][j] counts GPUs first, then
/// NICs; it is symmetric, with kSelf on the diagonal.
struct Topology {
  std::vector<TopologyGpu> gpus;
  std::vector<TopologyNic> nics;
  std::vector<std::vector<Link>> links;
  std::vector<std::string> notes;  ///< what couldn't be told, for people

  std::size_t size() const { return gpus.size() + nics.size(); }
  const std::string& label(std::size_t device) const;
};

constexpr std::size_t kMostTopologyDevices = 64;  ///< GPUs and NICs together

/// The GPUs of `inventory` and their links as `session` tells them. A pair whose link can't be read is
/// kUnknown and noted. NVML knows no NICs: see add_nics.
Topology read_topology(const nvml::Session& session, const Inventory& inventory);

}  // namespace lorikeet::device
