#include "device/cards.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "device/measured_file.h"
#include "device/selection.h"
#include "device/uuid.h"

namespace lorikeet::device {

Snapshot take_snapshot() {
  Snapshot snapshot;
  std::string why;
  const auto session = nvml::open_driver(why);
  snapshot.inventory = session ? read_inventory(*session) : no_inventory(why);
  if (session) snapshot.topology = read_topology(*session, snapshot.inventory);
  if (const auto file = measurements_file(snapshot.inventory))
    snapshot.measured = load_measurements(*file, snapshot.topology);
  return snapshot;
}

const Snapshot& first_snapshot() {
  static const Snapshot snapshot = take_snapshot();
  return snapshot;
}

std::optional<std::size_t> gpu_of(const CudaDevice& device, const Inventory& inventory) {
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    const GpuInfo& gpu = inventory.gpus[i];
    // A slice has a UUID of its own, and its card's address.
    if (gpu.uuid && !device.uuid.empty() && uuid_begins(*gpu.uuid, device.uuid)) return i;
    if (gpu.pci && gpu.pci == device.pci) return i;
  }
  return std::nullopt;
}

CardOrder preferred_cards(const std::vector<CudaDevice>& found, const Snapshot& snapshot, int ranks) {
  CardOrder order;
  order.numbers.resize(found.size());
  std::iota(order.numbers.begin(), order.numbers.end(), 0);
  if (ranks < 1 || static_cast<std::size_t>(ranks) >= found.size() || found.size() > kMostCandidates)
    return order;

  std::map<std::size_t, int> number_of;  // by GPU
  GpuSet candidates;
  for (const int number : order.numbers) {
    const auto gpu = gpu_of(found[static_cast<std::size_t>(number)], snapshot.inventory);
    if (!gpu || snapshot.inventory.gpus[*gpu].mig.value_or(false) || !number_of.emplace(*gpu, number).second)
      return order;
    candidates.push_back(*gpu);
  }
  std::sort(candidates.begin(), candidates.end());
  const LinkModel model(snapshot.topology, snapshot.measured);
  const Selection best = best_set(model, candidates, static_cast<std::size_t>(ranks));
  const auto chosen = [&](int number) {
    return std::any_of(best.gpus.begin(), best.gpus.end(),
                       [&](std::size_t gpu) { return number_of.at(gpu) == number; });
  };
  std::stable_partition(order.numbers.begin(), order.numbers.end(), chosen);
  order.reason = best.reason;
  return order;
}

}  // namespace lorikeet::device
