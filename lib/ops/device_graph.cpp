#include "ops/device_graph.h"

#include "base/program_module.h"
#include "ops/device_graph_module.h"

namespace lorikeet::ops {

std::unique_ptr<DeviceGraph> make_device_graph(const DeviceGraph::Pool& pool) {
  static auto* const make = reinterpret_cast<MakeDeviceGraph*>(function_beside_program(
      "liblorikeet_cuda_graph.so", kMakeDeviceGraph,
      "[training.cuda_graphs] needs liblorikeet_cuda_graph.so, which a build with CUDA makes beside the "
      "programs"));
  std::unique_ptr<DeviceGraph> graph;
  make(pool, &graph);
  return graph;
}

}  // namespace lorikeet::ops
