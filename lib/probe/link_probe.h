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

/// What times transfers between GPUs. Rates are in GB/s (1e9 bytes a second).
class LinkTimer {
 public:
  virtual ~LinkTimer() = default;
  /// Whether `to` can be given access to the memory of `from`.
  virtual bool has_peer_access(const Copy& copy) = 0;
  /// The rate of each of `copies` while all of them run, with peer access or through main memory.
  virtual std::vector<double> copy(const std::vector<Copy>& copies, bool peer_access) = 0;
  /// Bus bandwidth of an all-reduce of `bytes` on each of `gpus`: 2 (N-1)/N of the bytes over its time. Empty
  /// where it fails.
  virtual std::optional<double> all_reduce(const device::GpuSet& gpus, std::int64_t bytes) = 0;
};

struct SetProbe {
  device::GpuSet gpus;
  std::optional<double> all_reduce_gb_per_second;  ///< empty where it failed
  /// The slowest copy while each GPU sends to the next one: what a shared uplink leaves.
  double at_once_gb_per_second = 0;
};

struct LinkProbe {
  device::Measurements measured;  ///< pairs by the faster way, and the sets
  /// Rates of the pairs by each way; [i][j] from i to j. Empty where there is no such way.
  std::vector<std::vector<std::optional<double>>> with_peer_access, through_memory;
  std::vector<SetProbe> sets;
};

/// What is told on the way.
struct LinkProgress {
  std::function<void(const std::string&)> next;  ///< what comes now
  std::function<void(const device::Measurements&)>
      measured;  ///< all so far: after the pairs, and after each set
};

/// Times every ordered pair of `candidates` alone, then, for each number of GPUs, the sets that the model of
/// these pairs ranks highest: kLeastSets of them, and more while an untimed one promises more than the best
/// timed, up to kMostSets. `payload_bytes` is what a step of training reduces.
LinkProbe probe_links(LinkTimer& timer, const device::Topology& topology, const device::GpuSet& candidates,
                      std::int64_t payload_bytes, const LinkProgress& progress);

constexpr std::size_t kLeastSets = 4, kMostSets = 8;

}  // namespace lorikeet::probe
