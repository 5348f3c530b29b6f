#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/inventory.h"

namespace lorikeet::device {

/// A device that CUDA would offer: a GPU of the inventory, or one MIG slice of it.
struct VisibleDevice {
  std::size_t gpu = 0;             ///< index into Inventory::gpus
  std::optional<std::size_t> mig;  ///< index into GpuInfo::mig_devices

  bool operator==(const VisibleDevice&) const = default;
};

struct VisibleDevices {
  std::vector<VisibleDevice> devices;  ///< CUDA's device 0, 1, ... if CUDA counts by PCI address
  /// The entry of CUDA_VISIBLE_DEVICES that names nothing, and why: CUDA offers only what stands before it.
  std::string stopped;
};

/// What CUDA makes of `setting`, the value of CUDA_VISIBLE_DEVICES (nullopt: not set, all GPUs). Entries are
/// numbers by PCI address, beginnings of a GPU- or MIG-UUID that fit one device, or MIG-<GPU's UUID>/<GPU
/// instance>/<compute instance>, which is refused in words because NVML names slices by UUID here; the first
/// entry that is none of these, -1 too, or a repeated one, ends the list. Source: CUDA programming guide,
/// environment variables; that a repeated entry ends it is this function's choice, the guide doesn't say.
VisibleDevices visible_devices(const Inventory& inventory, const std::optional<std::string>& setting);

/// The same for this process's environment.
VisibleDevices visible_devices(const Inventory& inventory);

/// A line that names the physical card, for a run's log: "NVIDIA A100-SXM4-80GB (GPU-..., 00000000:41:00.0)",
/// for a slice the slice's name and UUID before it.
std::string describe(const Inventory& inventory, const VisibleDevice& device);

}  // namespace lorikeet::device
