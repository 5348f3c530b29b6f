#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/ring.h"
#include "device/topology.h"

namespace lorikeet::device {

/// GPUs by their index in the topology, ascending.
using GpuSet = std::vector<std::size_t>;

struct MeasuredSet {
  GpuSet gpus;
  double gb_per_second = 0;  ///< 0 where the all-reduce failed
};

/// What was measured of a machine, in GB/s (1e9 bytes a second).
struct Measurements {
  /// pairs[i][j]: copying from GPU i to GPU j. No rows, or one for each GPU; empty where not measured.
  std::vector<std::vector<std::optional<double>>> pairs;
  /// All-reduce bus bandwidth of whole sets.
  std::vector<MeasuredSet> sets;

  bool empty() const { return pairs.empty() && sets.empty(); }
};

enum class FigureSource {
  kPrior,          ///< estimated from labels and names
  kMeasuredPairs,  ///< the slowest hop of the best ring over measured pairs: shared uplinks aren't in it
  kMeasuredSet,    ///< the set itself was measured
};

struct Figure {
  double gb_per_second = 0;
  FigureSource source = FigureSource::kPrior;
};

/// Estimates the all-reduce bus bandwidth of sets of GPUs in GB/s: what NCCL's tests call busbw, the rate of
/// one ring's hops, which doesn't depend on the number of GPUs. docs/topology.md has every number of the
/// prior with its source.
///
/// The prior. A PCIe hop carries the link's payload rate times a share by its class; NVLink carries links
/// times the rate of one times a share; a ring is as fast as its slowest hop, so that over PCIe the best
/// ring's is the weakest edge of the maximum spanning tree. GPUs joined by NVLink alone reach the graph's
/// smallest cut, behind a switch what each has. Cards without peer access to each other send every hop
/// through main memory: those behind one uplink (PIX, PXB) then share it, which is how such a pair gets
/// slower than a NODE pair. Peer access is what the driver says; where it says nothing, GeForce cards have
/// none and others have it.
class LinkModel {
 public:
  /// Throws Error (kUsage) when a measurement isn't finite and positive (a set's may be 0) or names a GPU
  /// that isn't there.
  explicit LinkModel(const Topology& topology, Measurements measured = {});

  const Topology& topology() const { return *topology_; }
  const Measurements& measured() const { return measured_; }

  /// The figure of a set of at least two GPUs: the set's own measurement, else that of its pairs where all
  /// are measured and the machine has at most BestRings::kMostNodes GPUs, else the prior. Where sets of as
  /// many GPUs were measured, what pairs promise counts for no more than it did for the best of them.
  Figure all_reduce(const GpuSet& set) const;
  /// The prior alone.
  double prior(const GpuSet& set) const;

 private:
  std::optional<double> from_pairs(const GpuSet& set) const;
  bool peers(std::size_t a, std::size_t b) const;
  double hop(std::size_t a, std::size_t b) const;
  double nvlink_rate(const GpuSet& joined) const;
  double uplink_rate(const std::vector<GpuSet>& islands, const GpuSet& set, LinkKind farthest) const;
  std::vector<GpuSet> islands_of(const GpuSet& set) const;

  const Topology* topology_;
  Measurements measured_;
  std::vector<bool> switched_;  // by GPU: its NVLinks end in a switch
  std::shared_ptr<const BestRings> rings_;
  std::map<std::size_t, double>
      kept_;  // by number of GPUs: the largest part of what their pairs promise that sets reached
};

}  // namespace lorikeet::device
