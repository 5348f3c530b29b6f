#include "ops/device_graph_module.h"

#include <ATen/cuda/CUDAGraph.h>

extern "C" {
lorikeet::ops::MakeDeviceGraph lorikeet_make_device_graph;
}

namespace {

using lorikeet::ops::DeviceGraph;

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(const Pool& pool) : pool_(pool) {}

  // Of this thread alone: others, which make batches, may go on to pin memory.
  void begin() override { graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal); }
  void end() override { graph_.capture_end(); }
  void launch() override { graph_.replay(); }
  Pool pool() const override { return graph_.pool(); }

 private:
  Pool pool_;
  mutable at::cuda::CUDAGraph graph_;  // its pool() isn't const
};

}  // namespace

void lorikeet_make_device_graph(const DeviceGraph::Pool& pool, std::unique_ptr<DeviceGraph>* graph) {
  *graph = std::make_unique<CudaGraph>(pool);
}
