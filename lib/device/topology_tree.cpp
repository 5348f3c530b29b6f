#include "device/topology_tree.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "device/number_list.h"

namespace lorikeet::device {
namespace {

using Group = std::vector<std::size_t>;  // devices, ascending

struct Level {
  LinkKind farthest;
  const char* name;
};
constexpr std::array<Level, 3> kLevels = {{{LinkKind::kPhb, "PCIe host bridge (PHB)"},
                                           {LinkKind::kPxb, "PCIe switches (PXB)"},
                                           {LinkKind::kPix, "PCIe switch (PIX)"}}};

// The parts of `group` whose members `joined` connects, over others too; in the order of their first members.
template <typename Joined>
std::vector<Group> parts_of(const Group& group, Joined joined) {
  std::vector<Group> parts;
  std::vector<bool> placed(group.size(), false);
  for (std::size_t start = 0; start < group.size(); ++start) {
    if (placed[start]) continue;
    std::vector<std::size_t> reached{start};
    placed[start] = true;
    for (std::size_t next = 0; next < reached.size(); ++next) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (placed[i] || !joined(group[reached[next]], group[i])) continue;
        placed[i] = true;
        reached.push_back(i);
      }
    }
    Group& part = parts.emplace_back();
    for (const std::size_t i : reached) part.push_back(group[i]);
    std::sort(part.begin(), part.end());
  }
  return parts;
}

std::string leaf(const Topology& topology, std::size_t device) {
  if (device >= topology.gpus.size()) {
    const TopologyNic& nic = topology.nics[device - topology.gpus.size()];
    return nic.name.empty() || nic.name == nic.label ? nic.label : nic.label + " " + nic.name;
  }
  const TopologyGpu& gpu = topology.gpus[device];
  std::string line = gpu.label;
  if (gpu.model) line += " " + *gpu.model;
  if (gpu.bus_id) line += " at " + *gpu.bus_id;
  if (gpu.memory_free_bytes) line += ", " + format_bytes(*gpu.memory_free_bytes) + " free";
  if (gpu.memory_free_bytes && gpu.memory_total_bytes) line += " of " + format_bytes(*gpu.memory_total_bytes);
  if (gpu.pcie_width && gpu.pcie_generation)
    line += ", PCIe " + std::to_string(*gpu.pcie_generation) + ".0 x" + std::to_string(*gpu.pcie_width);
  if (gpu.mig.value_or(false)) line += ", in MIG mode";
  return line;
}

void add_line(std::string& out, std::size_t depth, const std::string& text) {
  out += std::string(2 * depth, ' ') + text + "\n";
}

// A level that holds the same devices as the one above it has no line of its own; the narrowest name is
// shown.
void add_group(std::string& out, const Topology& topology, const Group& group, std::size_t level,
               std::size_t depth) {
  if (group.size() == 1) return add_line(out, depth, leaf(topology, group[0]));
  if (level == kLevels.size()) {
    for (const std::size_t device : group) add_line(out, depth, leaf(topology, device));
    return;
  }
  const auto parts = parts_of(group, [&](std::size_t a, std::size_t b) {
    const LinkKind kind = topology.links[a][b].kind;
    return kind >= LinkKind::kPix && kind <= kLevels[level].farthest;
  });
  for (const Group& part : parts) {
    const bool narrower =
        level + 1 < kLevels.size() && parts_of(part, [&](std::size_t a, std::size_t b) {
                                        const LinkKind kind = topology.links[a][b].kind;
                                        return kind >= LinkKind::kPix && kind <= kLevels[level + 1].farthest;
                                      }).size() == 1;
    const bool own_line = part.size() > 1 && !narrower;
    if (own_line) add_line(out, depth, kLevels[level].name);
    add_group(out, topology, part, level + 1, depth + (own_line ? 1 : 0));
  }
}

// GPUs of one told NUMA node belong together, where none is told those near the same CPUs; NICs go to the
// GPUs that are nearest.
std::vector<Group> numa_groups(const Topology& topology) {
  Group all(topology.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto place = [&](std::size_t device) {
    if (device >= topology.gpus.size()) return std::vector<int>{};
    const TopologyGpu& gpu = topology.gpus[device];
    return gpu.numa_nodes.empty() ? gpu.cpus : gpu.numa_nodes;
  };
  return parts_of(all, [&](std::size_t a, std::size_t b) {
    const std::vector<int> of_a = place(a), of_b = place(b);
    if (!of_a.empty() && !of_b.empty()) return of_a == of_b;
    const LinkKind kind = topology.links[a][b].kind;
    return kind >= LinkKind::kPix && kind <= LinkKind::kNode;
  });
}

std::string name_of(const Topology& topology, const Group& group) {
  if (group[0] >= topology.gpus.size()) return "NUMA node not told";
  const TopologyGpu& gpu = topology.gpus[group[0]];  // GPUs come first, and all are of one place
  const char* several = gpu.numa_nodes.size() > 1 ? "s " : " ";
  std::string name = gpu.numa_nodes.empty() ? "NUMA node not told"
                                            : "NUMA node" + (several + format_number_list(gpu.numa_nodes));
  if (!gpu.cpus.empty()) name += " (CPUs " + format_number_list(gpu.cpus) + ")";
  return name;
}

void add_nvlinks(std::string& out, const Topology& topology) {
  Group gpus(topology.gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i] = i;
  const auto joined = [&](std::size_t a, std::size_t b) {
    return topology.links[a][b].kind == LinkKind::kNvLink;
  };
  for (const Group& part : parts_of(gpus, joined)) {
    if (part.size() == 1) continue;
    std::vector<std::string> names;
    int fewest = topology.links[part[0]][part[1]].nvlinks, most = fewest;
    for (const std::size_t a : part) {
      names.push_back(topology.label(a));
      for (const std::size_t b : part) {
        if (a == b) continue;
        fewest = std::min(fewest, topology.links[a][b].nvlinks);
        most = std::max(most, topology.links[a][b].nvlinks);
      }
    }
    const std::string count = fewest == most ? "NV" + std::to_string(most)
                                             : (fewest == 0 ? "not each with each, up to NV"
                                                            : "NV" + std::to_string(fewest) + " to NV") +
                                                   std::to_string(most);
    add_line(out, 0, "NVLink: " + join(names, ", ") + " (" + count + ")");
  }
}

}  // namespace

std::string format_topology_tree(const Topology& topology) {
  std::string out;
  for (const Group& group : numa_groups(topology)) {
    add_line(out, 0, name_of(topology, group));
    add_group(out, topology, group, 0, 1);
  }
  add_nvlinks(out, topology);
  return out;
}

}  // namespace lorikeet::device
