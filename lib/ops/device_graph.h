#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace lorikeet::ops {

/// Work of a GPU, recorded once and then launched as a whole: a CUDA graph. One launch takes the host a few
/// microseconds, however many kernels there are, and the card begins each as soon as the one before it ends.
///
/// What is recorded is the kernels' addresses and numbers: tensors that existed before have to live, at their
/// place, as long as the graph is launched; numbers of the host are those of the recording.
class DeviceGraph {
 public:
  /// Memory that recorded work takes for itself and keeps. Graphs that are never under way together may share
  /// one: a graph must not read what another's work left there.
  using Pool = std::pair<std::uint64_t, std::uint64_t>;

  virtual ~DeviceGraph() = default;

  /// From here to `end` what this thread puts on the current stream is recorded, and not done. The stream
  /// must not be the device's default one. A call that makes the host wait is an error.
  virtual void begin() = 0;
  /// Throws where something that CUDA doesn't record came between. Then the process is in no state to go on:
  /// libtorch's allocator still takes the recording for one under way (pytorch/pytorch#180395).
  virtual void end() = 0;
  /// Puts all of it on the current stream.
  virtual void launch() = 0;
  /// This graph's, once it has begun.
  virtual Pool pool() const = 0;
};

/// A graph without work, for the current GPU. `pool`: another graph's, or {} for one of its own. Throws Error
/// (kEnvironment) where CUDA isn't built in or its module isn't beside the program.
std::unique_ptr<DeviceGraph> make_device_graph(const DeviceGraph::Pool& pool = {});

}  // namespace lorikeet::ops
