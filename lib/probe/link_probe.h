#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/link_model.h"
#include "device/topology.h"

namespace lorikeet::probe {

/// A copy from one GPU to another, by their indexes in the topology.
using Copy = std::pair<std::size_t, std::size_t>;

/// Measures transfers between GPUs. Rates are in GB/s (1e9 bytes a second).
class LinkTimer {
 public:
  virtual ~LinkTimer() = default;
  /// Whether `to` can be given access to the memory of `from`.
  virtual bool has_peer_access(const Copy& copy) = 0;
  /// The rate of each of `copies` while all of them run, with peer access or through main memory.
  virtual std::vector<double> copy(const std::vector<Copy>& copies, bool peer_access) = 0;
  /// Bus bandwidth of an all-reduce of `bytes` over `gpus`: 2 (N-1)/N of the bytes, divided by its time.
  /// Empty when it fails.
  virtual std::optional<double> all_reduce(const device::GpuSet& gpus, std::int64_t bytes) = 0;
};

struct SetProbe {
  device::GpuSet gpus;
  std::optional<double> all_reduce_gb_per_second;  ///< empty when it failed
  /// The slowest copy while each GPU sends to the next one: lower where they share an uplink.
  double at_once_gb_per_second = 0;
};

struct LinkProbe {
  device::Measurements measured;  ///< of the pairs, by the faster path, and of the sets
  /// Rates of the pairs by each path; [i][j] is from i to j. Empty where the path doesn't exist.
  std::vector<std::vector<std::optional<double>>> with_peer_access, through_memory;
  std::vector<SetProbe> sets;
};

/// Callbacks that report progress.
struct LinkProgress {
  std::function<void(const std::string&)> next;  ///< the name of the measurement that begins
  /// All measurements so far: called after the pairs, and after each set.
  std::function<void(const device::Measurements&)> measured;
};

/// Measures every ordered pair of `candidates` alone, then, for each number of GPUs, the sets that the model
/// of these pairs ranks highest: kLeastSets of them, then more, up to kMostSets, while the model predicts a
/// higher rate for a set that was not measured than for the best one that was. `payload_bytes` is the size of
/// a training step's reduction.
LinkProbe probe_links(LinkTimer& timer, const device::Topology& topology, const device::GpuSet& candidates,
                      std::int64_t payload_bytes, const LinkProgress& progress);

constexpr std::size_t kLeastSets = 4, kMostSets = 8;

}  // namespace lorikeet::probe
