#include "device/selection.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::device {
namespace {

constexpr double kEnoughOfBest = 0.9;  // free memory of cards at rest differs by a display's buffers
constexpr double kBelieved = 0.9;      // share of an estimate that counts beside measurements

std::string names(const Topology& topology, const GpuSet& gpus) {
  std::vector<std::string> labels;
  for (const std::size_t gpu : gpus) labels.push_back(topology.gpus[gpu].label);
  return join(labels, ", ");
}

// Keeps what `keep` says and notes the others.
template <typename Keep>
GpuSet filtered(const Topology& topology, const GpuSet& gpus, Keep keep, const std::string& why,
                std::vector<std::string>& left_out) {
  GpuSet kept, dropped;
  for (const std::size_t gpu : gpus) (keep(gpu) ? kept : dropped).push_back(gpu);
  if (!dropped.empty()) left_out.push_back(names(topology, dropped) + " (" + why + ")");
  return kept;
}

// The free memory that `count` of `gpus` all have at best, or nullopt where one isn't told.
std::optional<std::uint64_t> memory_of_best(const Topology& topology, const GpuSet& gpus, std::size_t count) {
  std::vector<std::uint64_t> free;
  for (const std::size_t gpu : gpus) {
    const auto bytes = topology.gpus[gpu].memory_free_bytes;
    if (!bytes) return std::nullopt;
    free.push_back(*bytes);
  }
  std::sort(free.begin(), free.end(), std::greater<>());
  return free.at(count - 1);
}

// GPUs by model, those of unknown model together; only the groups that are large enough.
std::vector<GpuSet> groups_of_model(const Topology& topology, const GpuSet& gpus, std::size_t count) {
  std::map<std::string, GpuSet> by_model;
  for (const std::size_t gpu : gpus) by_model[topology.gpus[gpu].model.value_or("")].push_back(gpu);
  std::vector<GpuSet> groups;
  for (auto& [model, group] : by_model) {
    if (group.size() >= count) groups.push_back(std::move(group));
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

// The groups, each without the GPUs whose free memory is far below the best that `count` of any group have.
void keep_free_memory(const Topology& topology, std::vector<GpuSet>& groups, std::size_t count,
                      std::vector<std::string>& left_out) {
  std::uint64_t best = 0;
  for (const GpuSet& group : groups) {
    const auto memory = memory_of_best(topology, group, count);
    if (!memory) return;
    best = std::max(best, *memory);
  }
  const auto least = static_cast<std::uint64_t>(kEnoughOfBest * static_cast<double>(best));
  for (GpuSet& group : groups) {
    group = filtered(
        topology, group, [&](std::size_t gpu) { return *topology.gpus[gpu].memory_free_bytes >= least; },
        "less than " + format_bytes(least) + " free", left_out);
  }
  std::erase_if(groups, [&](const GpuSet& group) { return group.size() < count; });
}

// A bit for each GPU's NUMA nodes, the same for the same nodes: as many bits as kMostTopologyDevices are
// enough.
std::vector<std::uint64_t> numa_bits(const Topology& topology) {
  std::map<std::vector<int>, std::uint64_t> known;
  std::vector<std::uint64_t> bits;
  bits.reserve(topology.gpus.size());
  for (const TopologyGpu& gpu : topology.gpus)
    bits.push_back(known.emplace(gpu.numa_nodes, std::uint64_t{1} << known.size()).first->second);
  return bits;
}

struct Candidate {
  GpuSet gpus;
  Figure figure;  // of several GPUs
  int nodes = 0;

  // What it counts for beside others, without the last digits, in which equal links' figures can differ.
  float worth() const {
    const bool measured = figure.source == FigureSource::kMeasuredSet;
    return static_cast<float>(figure.gb_per_second * (measured ? 1 : kBelieved));
  }
};

bool better(const Candidate& a, const Candidate& b) {
  if (a.worth() != b.worth()) return a.worth() > b.worth();
  return a.nodes != b.nodes ? a.nodes < b.nodes : a.gpus < b.gpus;
}

// Every subset of `group` with `count` GPUs, in lexicographic order.
template <typename Visit>
void for_each_subset(const GpuSet& group, std::size_t count, Visit visit) {
  std::vector<std::size_t> at(count);
  std::iota(at.begin(), at.end(), 0);
  while (true) {
    GpuSet gpus;
    for (const std::size_t place : at) gpus.push_back(group[place]);
    visit(std::move(gpus));
    std::size_t turn = count;
    while (turn > 0 && at[turn - 1] == group.size() - count + turn - 1) --turn;
    if (turn == 0) return;
    ++at[turn - 1];
    for (std::size_t next = turn; next < count; ++next) at[next] = at[next - 1] + 1;
  }
}
// The sets that may be chosen, best first, and what the choice left aside.
struct Ranking {
  std::vector<Candidate> sets;
  std::vector<std::string> left_out;
  bool mixed = false;  // no model has enough GPUs
};

GpuSet without_mig(const Topology& topology, const GpuSet& candidates, std::size_t count,
                   std::vector<std::string>& left_out) {
  const auto whole = [&](std::size_t gpu) { return !topology.gpus[gpu].mig.value_or(false); };
  const bool any_whole = std::any_of(candidates.begin(), candidates.end(), whole);
  // A slice can train alone where there is nothing larger.
  if (count == 1 && !any_whole) return candidates;
  return filtered(topology, candidates, whole, "in MIG mode", left_out);
}

Ranking rank(const LinkModel& model, const GpuSet& candidates, std::size_t count) {
  const Topology& topology = model.topology();
  if (candidates.size() > kMostCandidates)
    throw Error("[topology] expected at most " + std::to_string(kMostCandidates) +
                    " GPUs to choose from, got " + std::to_string(candidates.size()) +
                    "; name some by CUDA_VISIBLE_DEVICES",
                ErrorKind::kEnvironment);
  Ranking ranking;
  const GpuSet eligible = without_mig(topology, candidates, count, ranking.left_out);
  if (count == 0 || eligible.size() < count) {
    const std::string mig = ranking.left_out.empty() ? "" : "; left out: " + join(ranking.left_out, ", ");
    const std::string range =
        eligible.empty() ? "to choose from, there is none"
                         : "from 1 to " + std::to_string(eligible.size()) + ", got " + std::to_string(count);
    throw Error("[topology] expected a number of GPUs " + range + mig, ErrorKind::kEnvironment);
  }
  std::vector<GpuSet> groups = groups_of_model(topology, eligible, count);
  ranking.mixed = groups.empty();
  if (ranking.mixed) {
    groups = {eligible};
  } else {
    const auto of_model = [&](std::size_t gpu) {
      return std::any_of(groups.begin(), groups.end(), [&](const GpuSet& group) {
        return std::find(group.begin(), group.end(), gpu) != group.end();
      });
    };
    filtered(topology, eligible, of_model, "too few of its model", ranking.left_out);
  }
  keep_free_memory(topology, groups, count, ranking.left_out);

  const std::vector<std::uint64_t> numa = numa_bits(topology);
  for (const GpuSet& group : groups) {
    for_each_subset(group, count, [&](GpuSet gpus) {
      std::uint64_t nodes = 0;
      for (const std::size_t gpu : gpus) nodes |= numa[gpu];
      const Figure figure = count > 1 ? model.all_reduce(gpus) : Figure{};
      ranking.sets.push_back({std::move(gpus), figure, std::popcount(nodes)});
    });
  }
  std::sort(ranking.sets.begin(), ranking.sets.end(), better);
  return ranking;
}

std::string reason_for(const Ranking& ranking, std::size_t count, bool memory_is_told) {
  static constexpr const char* kHow[] = {"estimated from the links",
                                         "by the slowest measured pair of its ring", "measured"};
  const Candidate& best = ranking.sets.front();
  std::string text = count == 1 ? (memory_is_told ? "the first GPU that is free" : "the first GPU")
                                : "the largest all-reduce bandwidth";
  if (count > 1) {
    const std::size_t tried = ranking.sets.size();
    const auto equal = std::count_if(ranking.sets.begin(), ranking.sets.end(),
                                     [&](const Candidate& one) { return one.worth() == best.worth(); });
    text += std::string(" (") + kHow[static_cast<std::size_t>(best.figure.source)] + ") of " +
            std::to_string(tried) + (tried == 1 ? " set" : " sets");
    if (equal > 1)
      text += ", first by NUMA nodes and bus order among " + std::to_string(equal) + " equal ones";
  }
  if (ranking.mixed) text += "; models are mixed, for no model has " + std::to_string(count) + " GPUs";
  if (!ranking.left_out.empty()) text += "; left out: " + join(ranking.left_out, ", ");
  return text;
}

}  // namespace

GpuSet all_gpus(const Topology& topology) {
  GpuSet all(topology.gpus.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Selection best_set(const LinkModel& model, const GpuSet& candidates, std::size_t count) {
  const Ranking ranking = rank(model, candidates, count);
  const Candidate& best = ranking.sets.front();
  const bool told = model.topology().gpus[best.gpus[0]].memory_free_bytes.has_value();
  Selection selection{best.gpus, {}, ranking.sets.size(), reason_for(ranking, count, told)};
  if (count > 1) selection.figure = best.figure;
  return selection;
}

std::vector<GpuSet> ranked_sets(const LinkModel& model, const GpuSet& candidates, std::size_t count) {
  std::vector<GpuSet> sets;
  Ranking ranking = rank(model, candidates, count);
  sets.reserve(ranking.sets.size());
  for (Candidate& candidate : ranking.sets) sets.push_back(std::move(candidate.gpus));
  return sets;
}

std::vector<Selection> best_sets(const LinkModel& model, const GpuSet& candidates) {
  std::vector<std::string> left_out;
  const std::size_t most = std::max<std::size_t>(
      without_mig(model.topology(), candidates, 2, left_out).size(), candidates.empty() ? 0 : 1);
  std::vector<Selection> selections;
  for (std::size_t count = 1; count <= most; ++count)
    selections.push_back(best_set(model, candidates, count));
  return selections;
}

}  // namespace lorikeet::device
