// The few calls of the CUDA driver's C interface that a list of devices needs, found by dlopen: declared here
// because its header is only there where a toolkit is.
#include <dlfcn.h>

#include <array>
#include <cstdlib>

#include "base/hash.h"
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

// CUuuid
using Uuid = std::array<unsigned char, 16>;

std::string format(const Uuid& uuid, const std::string& device_name) {
  // The driver tells a slice of a card by its name alone.
  std::string text = device_name.find(" MIG ") == std::string::npos ? "GPU-" : "MIG-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += to_hex({reinterpret_cast<const char*>(&uuid[i]), 1});
  }
  return text;
}

// The driver's own order (FASTEST_FIRST) puts another card first on a mixed machine than nvidia-smi does.
void order_by_pci_address() { setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1); }

struct Driver {
  std::vector<CudaDevice> devices;
  std::optional<int> start_code;
};

Driver ask_driver() {
  order_by_pci_address();
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) return {};
  const auto init = symbol<int (*)(unsigned)>(library, "cuInit");
  const auto count_of = symbol<int (*)(int*)>(library, "cuDeviceGetCount");
  const auto get = symbol<int (*)(int*, int)>(library, "cuDeviceGet");
  const auto name_of = symbol<int (*)(char*, int, int)>(library, "cuDeviceGetName");
  const auto memory_of = symbol<int (*)(std::size_t*, int)>(library, "cuDeviceTotalMem_v2");
  const auto attribute_of = symbol<int (*)(int*, int, int)>(library, "cuDeviceGetAttribute");
  // Older drivers have no second version, which knows slices; what can't be told is left empty.
  const auto uuid_of = symbol<int (*)(Uuid*, int)>(library, "cuDeviceGetUuid_v2");
  const auto address_of = symbol<int (*)(char*, int, int)>(library, "cuDeviceGetPCIBusId");
  if (init == nullptr || count_of == nullptr || get == nullptr || name_of == nullptr ||
      memory_of == nullptr || attribute_of == nullptr) {
    return {};
  }
  int count = 0;
  Driver driver{{}, init(0)};
  if (driver.start_code == kSuccess) driver.start_code = count_of(&count);
  if (driver.start_code != kSuccess) return driver;

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
    CudaDevice device{name.data(), bytes, major, minor, {}, {}};
    Uuid uuid{};
    if (uuid_of != nullptr && uuid_of(&uuid, handle) == kSuccess) device.uuid = format(uuid, device.name);
    std::array<char, 32> address{};
    if (address_of != nullptr &&
        address_of(address.data(), static_cast<int>(address.size()), handle) == kSuccess) {
      device.pci = parse_pci_address(address.data());
    }
    driver.devices.push_back(std::move(device));
  }
  return driver;
}

const Driver& asked_driver() {
  static const Driver driver = ask_driver();
  return driver;
}

}  // namespace

const std::vector<CudaDevice>& cuda_devices() { return asked_driver().devices; }

std::optional<int> cuda_start_code() { return asked_driver().start_code; }

}  // namespace lorikeet::device
