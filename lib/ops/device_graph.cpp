#include "ops/device_graph.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "ops/device_graph_module.h"

namespace lorikeet::ops {
namespace {

MakeDeviceGraph* load_module() {
  // The dynamic linker puts the program's folder in the place of $ORIGIN.
  void* module = dlopen("$ORIGIN/liblorikeet_cuda_graph.so", RTLD_NOW | RTLD_LOCAL);
  void* make = module != nullptr ? dlsym(module, kMakeDeviceGraph) : nullptr;
  if (make == nullptr) {
    throw Error(std::string("[training.cuda_graphs] needs liblorikeet_cuda_graph.so, which a build with CUDA "
                            "makes beside the "
                            "programs: ") +
                    dlerror(),
                ErrorKind::kEnvironment);
  }
  return reinterpret_cast<MakeDeviceGraph*>(make);
}

}  // namespace

std::unique_ptr<DeviceGraph> make_device_graph(const DeviceGraph::Pool& pool) {
  static MakeDeviceGraph* const make = load_module();
  std::unique_ptr<DeviceGraph> graph;
  make(pool, &graph);
  return graph;
}

}  // namespace lorikeet::ops
