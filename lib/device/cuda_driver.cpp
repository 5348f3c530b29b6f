// The few calls of the CUDA driver's C interface that a list of devices needs, found by dlopen: declared here
// because its header is only there where a toolkit is.
#include <dlfcn.h>

#include <array>

#include "device/device.h"

namespace lorikeet::device {
namespace {

constexpr int kSuccess = 0;
// CUdevice_attribute
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;

// The driver stays loaded: CUDA itself uses it afterwards.
template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::vector<CudaDevice> ask_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) return {};
  const auto init = symbol<int (*)(unsigned)>(library, "cuInit");
  const auto count_of = symbol<int (*)(int*)>(library, "cuDeviceGetCount");
  const auto get = symbol<int (*)(int*, int)>(library, "cuDeviceGet");
  const auto name_of = symbol<int (*)(char*, int, int)>(library, "cuDeviceGetName");
  const auto memory_of = symbol<int (*)(std::size_t*, int)>(library, "cuDeviceTotalMem_v2");
  const auto attribute_of = symbol<int (*)(int*, int, int)>(library, "cuDeviceGetAttribute");
  if (init == nullptr || count_of == nullptr || get == nullptr || name_of == nullptr ||
      memory_of == nullptr || attribute_of == nullptr) {
    return {};
  }
  int count = 0;
  if (init(0) != kSuccess || count_of(&count) != kSuccess) return {};

  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    int handle = 0;
    std::array<char, 256> name{};
    std::size_t bytes = 0;
    int major = 0, minor = 0;
    if (get(&handle, i) != kSuccess ||
        name_of(name.data(), static_cast<int>(name.size()), handle) != kSuccess ||
        memory_of(&bytes, handle) != kSuccess || attribute_of(&major, kCapabilityMajor, handle) != kSuccess ||
        attribute_of(&minor, kCapabilityMinor, handle) != kSuccess) {
      break;  // a device that vanished: those before it still have their numbers
    }
    devices.push_back({name.data(), bytes, major, minor});
  }
  return devices;
}

}  // namespace

const std::vector<CudaDevice>& cuda_devices() {
  static const std::vector<CudaDevice> devices = ask_driver();
  return devices;
}

}  // namespace lorikeet::device
