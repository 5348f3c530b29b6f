#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "device/link_model.h"

namespace lorikeet::device {

/// The best set of so many GPUs.
struct Selection {
  GpuSet gpus;
  std::optional<Figure> figure;  ///< empty for one GPU: nothing crosses a wire
  std::size_t sets = 0;          ///< how many were compared
  std::string reason;            ///< one sentence for people
};

constexpr std::size_t kMostCandidates = 16;

/// The best `count` of `candidates` (indexes into the topology, ascending):
/// 1. For several GPUs none in MIG mode: NCCL doesn't join slices.
/// 2. All of one model where there are enough of one; else mixed, which the reason says.
/// 3. None with less than nine tenths of the free memory that `count` of the eligible can all offer at best;
///    not looked at where a card's free memory isn't told.
/// 4. Of the sets that are left, every one is tried: the largest all-reduce bandwidth, then the fewest NUMA
///    nodes, then the lowest indexes. Beside a measured set an estimate counts for nine tenths of itself.
/// Throws Error (kEnvironment) when there are too few candidates, or more than kMostCandidates: C(16, 8) =
/// 12870 sets are tried in milliseconds, and no machine of more is known.
Selection best_set(const LinkModel& model, const GpuSet& candidates, std::size_t count);

/// All sets that best_set chooses from, best first. Throws as it does.
std::vector<GpuSet> ranked_sets(const LinkModel& model, const GpuSet& candidates, std::size_t count);

/// best_set of every count from 1 up; those counts that MIG mode rules out are left away.
std::vector<Selection> best_sets(const LinkModel& model, const GpuSet& candidates);

/// All GPUs of a topology.
GpuSet all_gpus(const Topology& topology);

}  // namespace lorikeet::device
