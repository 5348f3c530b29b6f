#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include "device_memory.h"

namespace lorikeet::bench {

/// Starts a kernel's launches on a stream.
using Launch = std::function<void(cudaStream_t)>;

/// A kernel at one shape.
struct Case {
  std::string kernel, shape;
  std::int64_t bytes;  ///< that must be moved: each input read once, each output written once
  /// Makes buffers of its own, and what runs the kernel over them.
  std::function<Launch(DeviceMemory&)> make;
  bool in_graph = true;  ///< else launched by the host, which must be faster than the card
};

/// Microseconds of one run of `one`: the median over `repeats` of the mean over a CUDA graph of at least 16
/// runs, so that neither the host's time nor an event's counts; the gap between two launches, about a
/// microsecond, does. They take turns on sets of buffers of at least 256 MiB, and of four times the L2 cache,
/// so that it has none of what a run reads. What a kernel overwrites isn't restored in between.
double microseconds(const Case& one, int repeats);

}  // namespace lorikeet::bench
