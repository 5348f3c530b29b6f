#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"

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
};

/// The CUDA devices that the driver offers, in its order; empty without a driver or device. The driver's
/// library is loaded at run time: nothing of CUDA has to be installed. Asked once a process.
const std::vector<CudaDevice>& cuda_devices();

/// The device that the config's `device` means; auto is the first CUDA device, else the CPU.
/// `cuda_built` says whether this build can use CUDA devices. Throws Error when it isn't there, with what is.
Device select(const config::DeviceSetting& setting, bool cuda_built, const std::vector<CudaDevice>& found);

/// The device of one of `local_size` ranks on this machine, where `chosen` is what select gave for the
/// setting: on CPUs the same for all, on GPUs one for each. Throws Error when there are fewer GPUs than
/// ranks, or the setting names a single one.
Device for_rank(const Device& chosen, const config::DeviceSetting& setting, int local_rank, int local_size,
                const std::vector<CudaDevice>& found);

/// A line for run.json and the log: the CPU's model and the threads used, or the CUDA device's name and
/// memory.
std::string describe(const Device& device, const std::vector<CudaDevice>& found);

}  // namespace lorikeet::device
