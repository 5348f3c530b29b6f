#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "device/pci_address.h"

namespace lorikeet::device {

struct Device {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;

  bool is_cuda() const { return kind == Kind::kCuda; }
  /// "cpu" or "cuda:0".
  std::string name() const;
  bool operator==(const Device&) const = default;
};

/// A CUDA device as its driver describes it.
struct CudaDevice {
  std::string name;
  std::uint64_t memory_bytes = 0;
  int capability_major = 0, capability_minor = 0;  ///< "compute capability"
  std::string uuid;                                ///< "GPU-...", of a slice "MIG-..."; empty where not told
  std::optional<PciAddress> pci;

  /// 10 * major + minor.
  int capability() const { return 10 * capability_major + capability_minor; }
};

/// The CUDA devices that the driver offers; empty without a driver or device. The driver's library is loaded
/// at run time: nothing of CUDA has to be installed. Asked once a process, in the order of PCI addresses:
/// the first call sets CUDA_DEVICE_ORDER, before which nothing of CUDA may have started.
const std::vector<CudaDevice>& cuda_devices();

/// What starting the driver for that answered: 0 after success, else CUDA's error (100 is "no device"); empty
/// where there is no driver.
std::optional<int> cuda_start_code();

/// The devices that the config's `device` allows for `ranks` processes of this machine, one each; several
/// processes share a CPU. `preferred` is an order of `found` in which auto and cuda take cards (device
/// numbers, see preferred_cards); auto is the CPU where there are no cards or `cuda_built` is false.
/// Throws Error when what is named isn't there, with what is, when it is one card for several ranks, and when
/// there are fewer cards than ranks.
std::vector<Device> select(const config::DeviceSetting& setting, bool cuda_built,
                           const std::vector<CudaDevice>& found, const std::vector<int>& preferred,
                           int ranks);

/// A line for run.json and the log: the CPU's model, or the CUDA device's name, memory, UUID and PCI address.
std::string describe(const Device& device, const std::vector<CudaDevice>& found);

}  // namespace lorikeet::device
