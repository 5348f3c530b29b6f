#pragma once

#include "ops/device_graph.h"

// The one function of liblorikeet_cuda_graph.so, which lies beside the programs and names symbols of
// libtorch's CUDA half: so that they start without it (ops/cuda_library.h).
namespace lorikeet::ops {

/// Makes a graph into *graph. Throws what libtorch throws.
using MakeDeviceGraph = void(const DeviceGraph::Pool& pool, std::unique_ptr<DeviceGraph>* graph);

inline constexpr const char* kMakeDeviceGraph = "lorikeet_make_device_graph";

}  // namespace lorikeet::ops
