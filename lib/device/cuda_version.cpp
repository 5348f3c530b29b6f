#include "device/cuda_version.h"

#include <dlfcn.h>

namespace lorikeet::device {

std::optional<int> driver_cuda_version() {
  // Stays loaded: CUDA itself uses it afterwards.
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) return std::nullopt;
  const auto version_of = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  return version_of != nullptr && version_of(&version) == 0 && version > 0 ? std::optional(version)
                                                                           : std::nullopt;
}

}  // namespace lorikeet::device
