#include "ops/cuda_library.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <string>

#include "base/error.h"

namespace lorikeet::ops {

void load_cuda_library() {
  if (c10::impl::hasDeviceGuardImpl(at::kCUDA)) return;
  // Global: NCCL's module (comm/nccl.cpp) names its symbols.
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw Error(std::string("[device] can't load the CUDA half of libtorch, which a GPU needs: ") +
                    dlerror() + "; use a torch wheel with CUDA, or device=cpu",
                ErrorKind::kEnvironment);
  }
}

at::Device cuda_device(int index) {
  load_cuda_library();
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

at::Device use_cuda_device(int index) {
  const at::Device device = cuda_device(index);
  // Before CUDA is asked for anything else: it says what is wrong where CUDA can't start.
  at::globalContext().lazyInitDevice(at::kCUDA);
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

}  // namespace lorikeet::ops
