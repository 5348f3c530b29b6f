#include "device/link_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "device/pcie_rate.h"

namespace lorikeet::device {
namespace {

// --- PCIe
// -----------------------------------------------------------------------------------------------------

constexpr unsigned kUnknownGeneration = 4, kUnknownWidth = 16;

double pcie_rate(const TopologyGpu& gpu) {
  return pcie_gb_per_second(gpu.pcie_generation.value_or(kUnknownGeneration),
                            gpu.pcie_width.value_or(kUnknownWidth));
}

// Share of the payload rate that a hop reaches where cards access each other. Assumed: only their order (the
// one of NCCL's path types) and that crossing sockets halves the rate are common experience; measurement
// decides.
double share_of_peers(LinkKind kind) {
  switch (kind) {
    case LinkKind::kPix: return 1.0;
    case LinkKind::kPxb: return 0.95;
    case LinkKind::kPhb: return 0.8;
    case LinkKind::kNode: return 0.7;
    default: return 0.5;
  }
}

// Through main memory every byte crosses PCIe and memory twice, and the two copies wait for each other.
// Assumed.
double share_through_memory(LinkKind kind) {
  return kind == LinkKind::kSys || kind == LinkKind::kUnknown ? 0.4 : 0.5;
}

// --- NVLink
// ---------------------------------------------------------------------------------------------------

struct NamedRate {
  std::string_view model;
  double gb_per_second;
};
// GB/s of one link and direction; NVIDIA's data sheets. GA102 cards' four links carry 112.5 GB/s both ways.
constexpr NamedRate kNvLinks[] = {
    {"P100", 20},       {"3090", 14.0625}, {"A4500", 14.0625}, {"A5000", 14.0625}, {"A5500", 14.0625},
    {"A6000", 14.0625}, {"A40", 14.0625},  {"B100", 50},       {"B200", 50},       {"B300", 50}};
constexpr double kUnknownNvLink = 25;  // V100, A100 and H100, and most that are in use
// Share of the links' rate that rings reach: 230 to 240 of 300 GB/s on eight A100, 360 of 450 on eight H100.
constexpr double kNvLinkShare = 0.8;

double link_rate(const TopologyGpu& gpu) {
  if (gpu.nvlink_gb_per_second) return *gpu.nvlink_gb_per_second;
  for (const NamedRate& known : kNvLinks) {
    if (gpu.model && gpu.model->find(known.model) != std::string::npos) return known.gb_per_second;
  }
  return kUnknownNvLink;
}

// ---------------------------------------------------------------------------------------------------------------

// A GPU that shows more links to others than it can have reaches them through a switch.
bool behind_switch(const Topology& topology, std::size_t gpu) {
  if (const auto told = topology.gpus[gpu].nvswitch) return *told;
  int links = 0;
  for (std::size_t other = 0; other < topology.gpus.size(); ++other)
    links += topology.links[gpu][other].nvlinks;
  return links > static_cast<int>(nvml::kMostNvLinks);
}

void require_rate(double rate, const std::string& what) {
  if (!std::isfinite(rate) || rate <= 0)
    throw Error("[topology] " + what + ": expected a positive number of GB/s, got " + std::to_string(rate));
}

void check(const Measurements& measured, std::size_t gpus) {
  if (!measured.pairs.empty() && measured.pairs.size() != gpus)
    throw Error("[topology] measured pairs: expected " + std::to_string(gpus) + " rows, got " +
                std::to_string(measured.pairs.size()));
  for (const auto& row : measured.pairs) {
    if (row.size() != gpus)
      throw Error("[topology] measured pairs: expected rows of " + std::to_string(gpus) + ", got one of " +
                  std::to_string(row.size()));
    for (const auto& rate : row) {
      if (rate) require_rate(*rate, "a measured pair");
    }
  }
  for (const MeasuredSet& set : measured.sets) {
    if (set.gb_per_second != 0) require_rate(set.gb_per_second, "a measured set");
    const bool ascending =
        std::adjacent_find(set.gpus.begin(), set.gpus.end(), std::greater_equal<>()) == set.gpus.end();
    if (set.gpus.size() < 2 || !ascending || set.gpus.back() >= gpus)
      throw Error("[topology] a measured set: expected two or more of the machine's " + std::to_string(gpus) +
                  " GPUs, ascending");
  }
}

}  // namespace

LinkModel::LinkModel(const Topology& topology, Measurements measured)
    : topology_(&topology), measured_(std::move(measured)) {
  const std::size_t count = topology.gpus.size();
  check(measured_, count);
  for (std::size_t gpu = 0; gpu < count; ++gpu) switched_.push_back(behind_switch(topology, gpu));
  if (measured_.pairs.empty() || count > BestRings::kMostNodes) return;
  Matrix rate(count, std::vector<double>(count, 0));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) rate[i][j] = measured_.pairs[i][j].value_or(0);
  }
  rings_ = std::make_shared<const BestRings>(rate);
  for (const MeasuredSet& set : measured_.sets) {
    if (const auto promised = from_pairs(set.gpus)) {
      double& kept = kept_.try_emplace(set.gpus.size(), 0).first->second;
      kept = std::min(1.0, std::max(kept, set.gb_per_second / *promised));
    }
  }
}

std::optional<double> LinkModel::from_pairs(const GpuSet& set) const {
  const auto measured_to_all = [&](std::size_t from) {
    return std::all_of(set.begin(), set.end(),
                       [&](std::size_t to) { return from == to || measured_.pairs[from][to].has_value(); });
  };
  if (!rings_ || !std::all_of(set.begin(), set.end(), measured_to_all)) return std::nullopt;
  std::uint32_t bits = 0;
  for (const std::size_t gpu : set) bits |= std::uint32_t{1} << gpu;
  return rings_->slowest_hop(bits);
}

Figure LinkModel::all_reduce(const GpuSet& set) const {
  for (const MeasuredSet& known : measured_.sets) {
    if (known.gpus == set) return {known.gb_per_second, FigureSource::kMeasuredSet};
  }
  if (const auto promised = from_pairs(set)) {
    const auto kept = kept_.find(set.size());
    // Where all that were measured failed, nothing is known of the others.
    const double part = kept == kept_.end() || kept->second == 0 ? 1 : kept->second;
    return {part * *promised, FigureSource::kMeasuredPairs};
  }
  return {prior(set), FigureSource::kPrior};
}

bool LinkModel::peers(std::size_t a, std::size_t b) const {
  if (const auto told = topology_->links[a][b].p2p) return *told;
  const auto geforce = [&](std::size_t gpu) {
    const auto& model = topology_->gpus[gpu].model;
    return model && model->find("GeForce") != std::string::npos;
  };
  return !geforce(a) && !geforce(b);
}

double LinkModel::hop(std::size_t a, std::size_t b) const {
  const LinkKind kind = topology_->links[a][b].kind;
  const double share = peers(a, b) ? share_of_peers(kind) : share_through_memory(kind);
  return share * std::min(pcie_rate(topology_->gpus[a]), pcie_rate(topology_->gpus[b]));
}

// Sets of GPUs that NVLink joins, each alone where it joins none.
std::vector<GpuSet> LinkModel::islands_of(const GpuSet& set) const {
  std::vector<GpuSet> islands;
  for (const std::size_t gpu : set) {
    GpuSet joined{gpu};
    std::vector<GpuSet> others;
    for (GpuSet& island : islands) {
      const bool linked = std::any_of(island.begin(), island.end(), [&](std::size_t other) {
        return topology_->links[gpu][other].kind == LinkKind::kNvLink;
      });
      if (linked) {
        joined.insert(joined.end(), island.begin(), island.end());
      } else {
        others.push_back(std::move(island));
      }
    }
    std::sort(joined.begin(), joined.end());
    others.push_back(std::move(joined));
    islands = std::move(others);
  }
  return islands;
}

double LinkModel::nvlink_rate(const GpuSet& joined) const {
  double slowest_link = link_rate(topology_->gpus[joined[0]]);
  bool switched = true;
  int fewest = static_cast<int>(nvml::kMostNvLinks);
  Matrix links(joined.size(), std::vector<double>(joined.size(), 0));
  for (std::size_t i = 0; i < joined.size(); ++i) {
    slowest_link = std::min(slowest_link, link_rate(topology_->gpus[joined[i]]));
    switched = switched && switched_[joined[i]];
    for (std::size_t j = 0; j < joined.size(); ++j) {
      if (i == j) continue;
      const int count = topology_->links[joined[i]][joined[j]].nvlinks;
      links[i][j] = count;
      fewest = std::min(fewest, count);
    }
  }
  // Every ring crosses every cut, in both directions, and links carry both at once.
  const double usable = switched && fewest > 0 ? fewest : min_cut(links);
  return kNvLinkShare * slowest_link * usable;
}

// What GPUs of `set` that are at most `farthest` from each other leave each other of their common uplink when
// their hops go through main memory: an island of NVLink inside counts once, one that reaches out not at all.
double LinkModel::uplink_rate(const std::vector<GpuSet>& islands, const GpuSet& set,
                              LinkKind farthest) const {
  double rate = std::numeric_limits<double>::infinity();
  for (const std::size_t head : set) {
    GpuSet group{head};
    bool through_memory = false;
    for (const std::size_t other : set) {
      const LinkKind kind = topology_->links[head][other].kind;
      if (kind < LinkKind::kPix || kind > farthest) continue;
      group.push_back(other);
      through_memory = through_memory || !peers(head, other);
    }
    if (!through_memory) continue;
    const auto inside = std::count_if(islands.begin(), islands.end(), [&](const GpuSet& island) {
      return std::all_of(island.begin(), island.end(), [&](std::size_t gpu) {
        return std::find(group.begin(), group.end(), gpu) != group.end();
      });
    });
    if (inside < 2) continue;
    rate = std::min(rate, share_through_memory(farthest) * pcie_rate(topology_->gpus[head]) /
                              static_cast<double>(inside));
  }
  return rate;
}

double LinkModel::prior(const GpuSet& set) const {
  const std::vector<GpuSet> islands = islands_of(set);
  double rate = std::numeric_limits<double>::infinity();
  for (const GpuSet& island : islands) {
    if (island.size() > 1) rate = std::min(rate, nvlink_rate(island));
  }
  // The maximum spanning tree over islands (Prim): its weakest edge is what a ring over all can't avoid.
  std::vector<double> reach(islands.size(), 0);
  std::vector<bool> taken(islands.size(), false);
  std::size_t current = 0;
  for (std::size_t step = 1; step < islands.size(); ++step) {
    taken[current] = true;
    std::size_t next = islands.size();
    for (std::size_t i = 0; i < islands.size(); ++i) {
      if (taken[i]) continue;
      for (const std::size_t a : islands[current]) {
        for (const std::size_t b : islands[i]) reach[i] = std::max(reach[i], hop(a, b));
      }
      if (next == islands.size() || reach[i] > reach[next]) next = i;
    }
    rate = std::min(rate, reach[next]);
    current = next;
  }
  return std::min(
      {rate, uplink_rate(islands, set, LinkKind::kPix), uplink_rate(islands, set, LinkKind::kPxb)});
}

}  // namespace lorikeet::device
