#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/inventory.h"
#include "device/link_model.h"
#include "device/topology.h"

namespace lorikeet::device {

/// What NVML tells of this machine's cards, beside what CUDA lists.
struct Snapshot {
  Inventory inventory;    ///< without GPUs, and with the reason, where NVML tells nothing
  Topology topology;      ///< of the inventory's GPUs, in its order
  Measurements measured;  ///< of that topology, as they were kept; empty where nothing was measured
};

/// Asks NVML now, and looks for kept measurements.
Snapshot take_snapshot();

/// The snapshot of this process's first call. Take it before CUDA starts: a context of the process's own
/// would count as memory in use.
const Snapshot& first_snapshot();

/// The GPU of the inventory that a CUDA device is, or is a slice of; empty where it isn't told.
std::optional<std::size_t> gpu_of(const CudaDevice& device, const Inventory& inventory);

/// CUDA device numbers in the order in which a run of `ranks` processes takes them.
struct CardOrder {
  std::vector<int> numbers;  ///< all of them: the best set of `ranks` first, ascending
  std::string reason;        ///< why, for people; empty where there was nothing to choose
};

/// The order by best_set, or by number where it can't choose: a card that NVML doesn't know, MIG slices, more
/// ranks than cards, more cards than it compares.
CardOrder preferred_cards(const std::vector<CudaDevice>& found, const Snapshot& snapshot, int ranks);

}  // namespace lorikeet::device
