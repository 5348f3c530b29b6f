#include "device/nics.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "device/pci_address.h"

namespace lorikeet::device {
namespace {

namespace fs = std::filesystem;

// A device's place: the folders from its host bridge ("pci0000:40") down to itself, and its NUMA node.
struct Place {
  std::vector<std::string> path;
  std::optional<int> numa_node;
};

std::optional<Place> place_of(const fs::path& device) {
  std::error_code error;
  const fs::path real = fs::canonical(device, error);
  if (error) return std::nullopt;
  Place place;
  for (const fs::path& part : real) {
    const std::string name = part.string();
    if (!place.path.empty() || name.starts_with("pci0") || name.starts_with("pci1"))
      place.path.push_back(name);
  }
  if (place.path.empty()) return std::nullopt;
  std::ifstream file(real / "numa_node");
  if (int node = -1; file >> node && node >= 0) place.numa_node = node;
  return place;
}

// Bridges are folders between the nearest common one and the device. A switch is its upstream port, which
// both paths share, and a downstream port for each.
LinkKind kind_between(const Place& a, const Place& b) {
  const auto [in_a, in_b] = std::mismatch(a.path.begin(), a.path.end(), b.path.begin(), b.path.end());
  const auto common = in_a - a.path.begin();
  if (common == 0) {
    const bool one_node = a.numa_node == b.numa_node;  // also where the kernel knows none: a single socket
    return one_node ? LinkKind::kNode : LinkKind::kSys;
  }
  if (in_a == a.path.end() && in_b == b.path.end()) return LinkKind::kPix;  // two ports of one function
  // Functions of one card stand in one folder, below a root port.
  if (common == 1) return LinkKind::kPhb;
  const auto below = std::max(a.path.end() - in_a, b.path.end() - in_b);
  return below <= 2 ? LinkKind::kPix : LinkKind::kPxb;
}

std::vector<std::string> nic_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  // mlx5_10 comes after mlx5_2.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

}  // namespace

void add_nics(Topology& topology, const fs::path& sys) {
  std::vector<std::optional<Place>> places;
  for (const TopologyGpu& gpu : topology.gpus) {
    const auto address = gpu.bus_id ? parse_pci_address(*gpu.bus_id) : std::nullopt;
    places.push_back(address ? place_of(sys / "bus/pci/devices" / address->kernel_name()) : std::nullopt);
  }
  for (const std::string& name : nic_names(sys / "class/infiniband")) {
    if (topology.size() == kMostTopologyDevices) {
      topology.notes.push_back("only the first " + std::to_string(topology.nics.size()) + " NICs are shown");
      break;
    }
    topology.nics.push_back({"NIC" + std::to_string(topology.nics.size()), name});
    places.push_back(place_of(sys / "class/infiniband" / name / "device"));
  }
  const std::size_t size = topology.size();
  topology.links.resize(size);
  for (auto& row : topology.links) row.resize(size);
  for (std::size_t nic = topology.gpus.size(); nic < size; ++nic) {
    for (std::size_t other = 0; other < nic; ++other) {
      Link link;
      if (places[nic] && places[other]) link.kind = kind_between(*places[nic], *places[other]);
      topology.links[nic][other] = topology.links[other][nic] = link;
    }
    topology.links[nic][nic].kind = LinkKind::kSelf;
  }
}

}  // namespace lorikeet::device
