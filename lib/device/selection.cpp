#include "device/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
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
constexpr double kSame = 1e-9;         // relative; figures of equal links differ by rounding alone

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
  for (const TopologyGpu& gpu : topology.gpus)
    bits.push_back(known.emplace(gpu.numa_nodes, std::uint64_t{1} << known.size()).first->second);
  return bits;
}

struct Candidate {
  GpuSet gpus;
  double rate = 0;
  FigureSource source = FigureSource::kPrior;
  int nodes = 0;
};

bool same_rate(double a, double b) { return std::abs(a - b) <= kSame * std::max(a, b); }

bool better(const Candidate& a, const Candidate& b) {
  if (!same_rate(a.rate, b.rate)) return a.rate > b.rate;
  return a.nodes != b.nodes ? a.nodes < b.nodes : a.gpus < b.gpus;
}

class Search {
 public:
  explicit Search(const LinkModel& model) : model_(model), numa_(numa_bits(model.topology())) {}

  // Tries every subset of `group` with `count` GPUs, in lexicographic order.
  void try_all(const GpuSet& group, std::size_t count) {
    std::vector<std::size_t> at(count);
    std::iota(at.begin(), at.end(), 0);
    while (true) {
      GpuSet gpus;
      for (const std::size_t place : at) gpus.push_back(group[place]);
      try_one(std::move(gpus));
      std::size_t turn = count;
      while (turn > 0 && at[turn - 1] == group.size() - count + turn - 1) --turn;
      if (turn == 0) return;
      ++at[turn - 1];
      for (std::size_t next = turn; next < count; ++next) at[next] = at[next - 1] + 1;
    }
  }

  const Candidate& best() const { return best_; }
  std::size_t tried() const { return tried_; }
  std::size_t ties() const { return ties_; }

 private:
  void try_one(GpuSet gpus) {
    Candidate candidate{std::move(gpus), 0, FigureSource::kPrior, 0};
    std::uint64_t nodes = 0;
    for (const std::size_t gpu : candidate.gpus) nodes |= numa_[gpu];
    candidate.nodes = std::popcount(nodes);
    if (candidate.gpus.size() > 1) {
      const Figure figure = model_.all_reduce(candidate.gpus);
      candidate.rate = figure.gb_per_second;
      candidate.source = figure.source;
    }
    const bool tie = tried_ > 0 && same_rate(candidate.rate, best_.rate);
    if (tried_ == 0 || better(candidate, best_)) {
      if (!tie) ties_ = 0;
      best_ = std::move(candidate);
    }
    ties_ += tie ? 1 : 0;
    ++tried_;
  }

  const LinkModel& model_;
  std::vector<std::uint64_t> numa_;
  Candidate best_;
  std::size_t tried_ = 0, ties_ = 0;
};

std::string reason_for(const Search& search, std::size_t count, bool mixed,
                       const std::vector<std::string>& left_out) {
  static constexpr const char* kHow[] = {"estimated from the links",
                                         "by the slowest measured pair of its ring", "measured"};
  std::string text = count == 1 ? "the first GPU that is free" : "the largest all-reduce bandwidth";
  if (count > 1) {
    text += std::string(" (") + kHow[static_cast<std::size_t>(search.best().source)] + ") of " +
            std::to_string(search.tried()) + (search.tried() == 1 ? " set" : " sets");
    if (search.ties() > 0)
      text +=
          ", first by NUMA nodes and bus order among " + std::to_string(search.ties() + 1) + " equal ones";
  }
  if (mixed) text += "; models are mixed, for no model has " + std::to_string(count) + " GPUs";
  if (!left_out.empty()) text += "; left out: " + join(left_out, ", ");
  return text;
}

GpuSet without_mig(const Topology& topology, const GpuSet& candidates, std::size_t count,
                   std::vector<std::string>& left_out) {
  const auto whole = [&](std::size_t gpu) { return !topology.gpus[gpu].mig.value_or(false); };
  const bool any_whole = std::any_of(candidates.begin(), candidates.end(), whole);
  // A slice can train alone where there is nothing larger.
  if (count == 1 && !any_whole) return candidates;
  return filtered(topology, candidates, whole, "in MIG mode", left_out);
}

}  // namespace

GpuSet all_gpus(const Topology& topology) {
  GpuSet all(topology.gpus.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Selection best_set(const LinkModel& model, const GpuSet& candidates, std::size_t count) {
  const Topology& topology = model.topology();
  if (candidates.size() > kMostCandidates)
    throw Error("[topology] expected at most " + std::to_string(kMostCandidates) +
                    " GPUs to choose from, got " + std::to_string(candidates.size()) +
                    "; name some by CUDA_VISIBLE_DEVICES",
                ErrorKind::kEnvironment);
  std::vector<std::string> left_out;
  const GpuSet eligible = without_mig(topology, candidates, count, left_out);
  if (count == 0 || eligible.size() < count) {
    const std::string mig = left_out.empty() ? "" : "; left out: " + join(left_out, ", ");
    const std::string range =
        eligible.empty() ? "to choose from, there is none"
                         : "from 1 to " + std::to_string(eligible.size()) + ", got " + std::to_string(count);
    throw Error("[topology] expected a number of GPUs " + range + mig, ErrorKind::kEnvironment);
  }
  std::vector<GpuSet> groups = groups_of_model(topology, eligible, count);
  const bool mixed = groups.empty();
  if (mixed) {
    groups = {eligible};
  } else {
    const auto of_model = [&](std::size_t gpu) {
      return std::any_of(groups.begin(), groups.end(), [&](const GpuSet& group) {
        return std::find(group.begin(), group.end(), gpu) != group.end();
      });
    };
    filtered(topology, eligible, of_model, "too few of its model", left_out);
  }
  keep_free_memory(topology, groups, count, left_out);
  Search search(model);
  for (const GpuSet& group : groups) search.try_all(group, count);

  Selection selection{search.best().gpus, {}, search.tried(), reason_for(search, count, mixed, left_out)};
  if (count > 1) selection.figure = Figure{search.best().rate, search.best().source};
  return selection;
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
