#include "probe/link_probe.h"

#include <algorithm>

#include "base/strings.h"
#include "device/selection.h"

namespace lorikeet::probe {
namespace {

using Rates = std::vector<std::vector<std::optional<double>>>;

std::string names(const device::Topology& topology, const device::GpuSet& gpus) {
  std::vector<std::string> labels;
  labels.reserve(gpus.size());
  for (const std::size_t gpu : gpus) labels.push_back(topology.label(gpu));
  return join(labels, ", ");
}

void probe_pair(LinkTimer& timer, const Copy& pair, LinkProbe& probe) {
  const auto [from, to] = pair;
  auto& direct = probe.with_peer_access[from][to];
  auto& staged = probe.through_memory[from][to];
  if (timer.has_peer_access(pair)) direct = timer.copy({pair}, true)[0];
  staged = timer.copy({pair}, false)[0];
  probe.measured.pairs[from][to] = std::max(direct.value_or(0), *staged);
}

SetProbe probe_set(LinkTimer& timer, const device::GpuSet& gpus, std::int64_t payload_bytes) {
  std::vector<Copy> ring;
  bool peer_access = true;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    ring.emplace_back(gpus[i], gpus[(i + 1) % gpus.size()]);
    peer_access = peer_access && timer.has_peer_access(ring.back());
  }
  const std::vector<double> at_once = timer.copy(ring, peer_access);
  const std::optional<double> rate = timer.all_reduce(gpus, payload_bytes);
  return {gpus, rate, *std::min_element(at_once.begin(), at_once.end())};
}

// What is kept of the sets: one that fails ranks last, but where all of a size fail, it isn't the sets'
// fault.
std::vector<device::MeasuredSet> those_to_keep(const std::vector<SetProbe>& sets) {
  const auto one_worked = [&](std::size_t size) {
    return std::any_of(sets.begin(), sets.end(), [&](const SetProbe& set) {
      return set.gpus.size() == size && set.all_reduce_gb_per_second.has_value();
    });
  };
  std::vector<device::MeasuredSet> kept;
  for (const SetProbe& set : sets) {
    if (one_worked(set.gpus.size())) kept.push_back({set.gpus, set.all_reduce_gb_per_second.value_or(0)});
  }
  return kept;
}

bool timed(const LinkProbe& probe, const device::GpuSet& gpus) {
  return std::any_of(probe.sets.begin(), probe.sets.end(),
                     [&](const SetProbe& set) { return set.gpus == gpus; });
}

}  // namespace

LinkProbe probe_links(LinkTimer& timer, const device::Topology& topology, const device::GpuSet& candidates,
                      std::int64_t payload_bytes, const LinkProgress& progress) {
  const std::size_t size = topology.gpus.size();
  const Rates none(size, std::vector<std::optional<double>>(size));
  LinkProbe probe{{none, {}}, none, none, {}};
  for (const std::size_t from : candidates) {
    progress.next("copies from " + topology.label(from));
    for (const std::size_t to : candidates) {
      if (from != to) probe_pair(timer, {from, to}, probe);
    }
  }
  progress.measured(probe.measured);
  device::Measurements tried = probe.measured;
  for (std::size_t count = 2; count <= candidates.size(); ++count) {
    for (std::size_t done = 0; done < kMostSets; ++done) {
      const device::LinkModel model(topology, tried);
      const std::vector<device::GpuSet> ranked = device::ranked_sets(model, candidates, count);
      const auto next = std::find_if(ranked.begin(), ranked.end(),
                                     [&](const device::GpuSet& gpus) { return !timed(probe, gpus); });
      if (next == ranked.end() || (done >= kLeastSets && next != ranked.begin())) break;
      progress.next("all-reduce over " + names(topology, *next));
      probe.sets.push_back(probe_set(timer, *next, payload_bytes));
      tried.sets.push_back({*next, probe.sets.back().all_reduce_gb_per_second.value_or(0)});
      probe.measured.sets = those_to_keep(probe.sets);
      progress.measured(probe.measured);
    }
  }
  return probe;
}

}  // namespace lorikeet::probe
