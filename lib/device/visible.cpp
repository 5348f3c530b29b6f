#include "device/visible.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/strings.h"
#include "device/number_list.h"
#include "device/uuid.h"

namespace lorikeet::device {
namespace {

constexpr int kMostDevices = 1024;

// Every device that can be named, by PCI address; a GPU in MIG mode is followed by its slices.
std::vector<VisibleDevice> all_devices(const Inventory& inventory) {
  std::vector<VisibleDevice> devices;
  for (std::size_t gpu = 0; gpu < inventory.gpus.size(); ++gpu) {
    devices.push_back({gpu, {}});
    for (std::size_t mig = 0; mig < inventory.gpus[gpu].mig_devices.size(); ++mig)
      devices.push_back({gpu, mig});
  }
  return devices;
}

std::string uuid_of(const Inventory& inventory, const VisibleDevice& device) {
  const GpuInfo& gpu = inventory.gpus[device.gpu];
  return device.mig ? gpu.mig_devices[*device.mig].uuid : gpu.uuid.value_or("");
}

std::vector<VisibleDevice> with_uuid(const Inventory& inventory, const std::vector<VisibleDevice>& among,
                                     std::string_view beginning) {
  std::vector<VisibleDevice> found;
  for (const VisibleDevice& device : among) {
    if (uuid_begins(uuid_of(inventory, device), beginning)) found.push_back(device);
  }
  return found;
}

// The device of one entry, or nullopt with the reason.
std::optional<VisibleDevice> device_of(const Inventory& inventory, const std::string& entry,
                                       std::string& why) {
  if (is_uuid(entry)) {
    if (entry.find('/') != std::string::npos) {
      why = "names a MIG slice by instance numbers; use the UUID that nvidia-smi -L prints";
      return std::nullopt;
    }
    const auto found = with_uuid(inventory, all_devices(inventory), entry);
    if (found.size() == 1) return found[0];
    why = found.empty() ? "is no device here" : "fits " + std::to_string(found.size()) + " devices";
    return std::nullopt;
  }
  const auto index = parse_decimal(entry, kMostDevices);
  if (index && static_cast<std::size_t>(*index) < inventory.gpus.size())
    return VisibleDevice{static_cast<std::size_t>(*index), {}};
  why = index ? "is above the last of " + std::to_string(inventory.gpus.size()) + " GPUs"
              : "is neither a number of a GPU nor a UUID";
  return std::nullopt;
}

}  // namespace

std::string describe(const Inventory& inventory, const VisibleDevice& device) {
  const GpuInfo& gpu = inventory.gpus.at(device.gpu);
  if (!device.mig) return gpu.description();
  const MigDevice& slice = gpu.mig_devices.at(*device.mig);
  return slice.name.value_or("a slice") + " (" + slice.uuid + ") of " + gpu.description();
}

VisibleDevices visible_devices(const Inventory& inventory, const std::optional<std::string>& setting) {
  VisibleDevices visible;
  if (!setting) {
    for (std::size_t gpu = 0; gpu < inventory.gpus.size(); ++gpu) visible.devices.push_back({gpu, {}});
    return visible;
  }
  if (trim(*setting).empty()) return visible;
  for (const std::string& part : split(*setting, ',')) {
    const std::string entry = trim(part);
    std::string why;
    const auto device = device_of(inventory, entry, why);
    const auto& list = visible.devices;
    if (device && std::find(list.begin(), list.end(), *device) != list.end()) why = "is named twice";
    if (!why.empty()) {
      visible.stopped = "'" + escape_control(entry) + "' " + why;
      break;
    }
    visible.devices.push_back(*device);
  }
  return visible;
}

VisibleDevices visible_devices(const Inventory& inventory) {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible_devices(inventory, value == nullptr ? std::nullopt : std::optional<std::string>(value));
}

}  // namespace lorikeet::device
