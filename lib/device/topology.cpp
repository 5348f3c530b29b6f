#include "device/topology.h"

#include <algorithm>

#include "device/number_list.h"

namespace lorikeet::device {
namespace {

using nvml::Handle;
using nvml::Session;

struct NamedKind {
  LinkKind kind;
  std::string_view label;
};
constexpr NamedKind kNames[] = {{LinkKind::kSelf, "X"},   {LinkKind::kPix, "PIX"},   {LinkKind::kPxb, "PXB"},
                                {LinkKind::kPhb, "PHB"},  {LinkKind::kNode, "NODE"}, {LinkKind::kSys, "SYS"},
                                {LinkKind::kUnknown, "?"}};

// NVML's levels of the nearest common ancestor.
LinkKind kind_of_level(unsigned level) {
  switch (level) {
    case 0:  // two GPUs of one board: behind one bridge
    case 10: return LinkKind::kPix;
    case 20: return LinkKind::kPxb;
    case 30: return LinkKind::kPhb;
    case 40: return LinkKind::kNode;
    case 50: return LinkKind::kSys;
    default: return LinkKind::kUnknown;
  }
}

bool ends_in_switch(const GpuInfo& gpu) {
  return std::any_of(gpu.nvlinks.begin(), gpu.nvlinks.end(),
                     [](const NvLink& link) { return link.peer == NvLink::Peer::kSwitch; });
}

TopologyGpu describe(const GpuInfo& gpu, std::size_t index) {
  TopologyGpu out;
  out.label = "GPU" + std::to_string(index);
  out.model = gpu.name;
  out.uuid = gpu.uuid;
  if (gpu.pci) out.bus_id = gpu.pci->text();
  out.memory_total_bytes = gpu.memory_total_bytes;
  out.memory_free_bytes = gpu.memory_free_bytes;
  out.cpus = gpu.cpus;
  out.numa_nodes = gpu.numa_nodes;
  out.mig = gpu.mig;
  out.pcie_width = gpu.pcie_width;
  out.pcie_generation = gpu.pcie_generation_max;
  if (!gpu.nvlinks.empty()) {
    out.nvlink_gb_per_second = gpu.nvlinks[0].gb_per_second;
    out.nvswitch = ends_in_switch(gpu);
  }
  return out;
}

// NVLinks between two GPUs: those that end in the other, or what both have to switches. All switches of a
// machine are joined to each other.
int nvlinks_between(const GpuInfo& a, const GpuInfo& b) {
  const auto to_switch = [](const GpuInfo& gpu) {
    return std::count_if(gpu.nvlinks.begin(), gpu.nvlinks.end(),
                         [](const NvLink& link) { return link.peer == NvLink::Peer::kSwitch; });
  };
  const auto direct = std::count_if(a.nvlinks.begin(), a.nvlinks.end(), [&](const NvLink& link) {
    return link.peer != NvLink::Peer::kSwitch && link.peer_address && link.peer_address == b.pci;
  });
  return static_cast<int>(direct > 0 ? direct : std::min(to_switch(a), to_switch(b)));
}

// True if both directions say that memory can be read and written; empty where the driver doesn't tell.
std::optional<bool> p2p_between(const Session& session, Handle a, Handle b) {
  constexpr unsigned kRead = 0, kWrite = 1;
  bool can = true;
  for (const unsigned capability : {kRead, kWrite}) {
    unsigned status = 0;
    if (Session::status(session.calls().p2p_status, a, b, capability, &status) != nvml::kSuccess)
      return std::nullopt;
    can = can && status == 0;
  }
  return can;
}

Link link_between(const Session& session, const GpuInfo& a, const GpuInfo& b, std::string& trouble) {
  Handle first = nullptr, second = nullptr;
  for (const auto& [gpu, handle] : {std::pair(&a, &first), std::pair(&b, &second)}) {
    const int code = Session::status(session.calls().handle_by_index, gpu->nvml_index, handle);
    if (code != nvml::kSuccess) {
      trouble = session.reason(code);
      return {};
    }
  }
  Link link;
  link.p2p = p2p_between(session, first, second);
  link.nvlinks = nvlinks_between(a, b);
  if (link.nvlinks > 0) {
    link.kind = LinkKind::kNvLink;
    return link;
  }
  unsigned level = 0;
  const int code = Session::status(session.calls().common_ancestor, first, second, &level);
  if (code != nvml::kSuccess) {
    trouble = session.reason(code);
    return link;
  }
  link.kind = kind_of_level(level);
  if (link.kind == LinkKind::kUnknown) {
    trouble = "NVML's level " + std::to_string(level) + " is not a known one";
  }
  return link;
}

}  // namespace

std::string Link::label() const {
  if (kind == LinkKind::kNvLink) return "NV" + std::to_string(nvlinks);
  for (const NamedKind& name : kNames) {
    if (name.kind == kind) return std::string(name.label);
  }
  return "?";
}

std::optional<Link> parse_link(std::string_view label) {
  constexpr int kMostLinks = 64;
  if (label == "N/A") return Link{};
  if (label.starts_with("NV")) {
    const auto count = parse_decimal(label.substr(2), kMostLinks);
    if (!count || *count == 0) return std::nullopt;
    return Link{LinkKind::kNvLink, *count, {}};
  }
  for (const NamedKind& name : kNames) {
    if (name.label == label) return Link{name.kind, 0, {}};
  }
  return std::nullopt;
}

const std::string& Topology::label(std::size_t device) const {
  return device < gpus.size() ? gpus[device].label : nics.at(device - gpus.size()).label;
}

Topology read_topology(const nvml::Session& session, const Inventory& inventory) {
  Topology topology;
  const std::size_t count = inventory.gpus.size();
  for (std::size_t i = 0; i < count; ++i) topology.gpus.push_back(describe(inventory.gpus[i], i));
  topology.links.assign(count, std::vector<Link>(count));
  for (std::size_t i = 0; i < count; ++i) {
    topology.links[i][i].kind = LinkKind::kSelf;
    for (std::size_t j = i + 1; j < count; ++j) {
      std::string trouble;
      const Link link = link_between(session, inventory.gpus[i], inventory.gpus[j], trouble);
      topology.links[i][j] = topology.links[j][i] = link;
      if (!trouble.empty())
        topology.notes.push_back("the link between " + topology.label(i) + " and " + topology.label(j) +
                                 " isn't known: " + trouble);
    }
  }
  return topology;
}

}  // namespace lorikeet::device
