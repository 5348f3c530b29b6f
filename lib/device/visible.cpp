#include "device/visible.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/strings.h"
#include "device/number_list.h"

namespace lorikeet::device {
namespace {

constexpr int kMostDevices = 1024;

bool is_uuid(std::string_view text) { return text.starts_with("GPU-") || text.starts_with("MIG-"); }

// UUIDs are compared without regard to case, as CUDA does.
bool begins(std::string_view uuid, std::string_view beginning) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return uuid.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), uuid.begin(),
                                                       [&](char a, char b) { return lower(a) == lower(b); });
}

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
    if (begins(uuid_of(inventory, device), beginning)) found.push_back(device);
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

std::string list_of(const Inventory& inventory, const VisibleDevices& visible) {
  if (visible.devices.empty())
    return inventory.absent.empty() ? "no GPU is visible" : "no GPU is visible: " + inventory.absent;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < visible.devices.size(); ++i)
    names.push_back(std::to_string(i) + ": " + describe(inventory, visible.devices[i]));
  return "visible are " + join(names, "; ");
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

std::optional<std::string> order_cuda_by_pci_address() {
  constexpr const char* kName = "CUDA_DEVICE_ORDER";
  constexpr const char* kOrder = "PCI_BUS_ID";
  const char* value = std::getenv(kName);
  std::optional<std::string> before;
  if (value != nullptr && std::string_view(value) != kOrder) before = value;
  setenv(kName, kOrder, 1);
  return before;
}

std::size_t resolve_device(std::string_view setting, const Inventory& inventory,
                           const VisibleDevices& visible) {
  const auto fail = [&](const std::string& why) {
    return Error("[device] '" + escape_control(setting) + "' " + why + "; " + list_of(inventory, visible),
                 ErrorKind::kEnvironment);
  };
  std::vector<VisibleDevice> found;
  if (is_uuid(setting)) {
    found = with_uuid(inventory, all_devices(inventory), setting);
  } else if (const auto address = parse_pci_address(setting)) {
    for (const VisibleDevice& device : all_devices(inventory)) {
      if (!device.mig && inventory.gpus[device.gpu].pci == *address) found.push_back(device);
    }
  } else if (const auto index = parse_decimal(setting, kMostDevices)) {
    if (static_cast<std::size_t>(*index) < visible.devices.size()) return static_cast<std::size_t>(*index);
  } else {
    throw fail("is neither a number, nor a GPU's UUID (GPU-...), nor a PCI address (41:00.0)");
  }
  if (found.empty()) throw fail("isn't there");
  if (found.size() > 1) throw fail("fits " + std::to_string(found.size()) + " devices; write more of it");
  const auto at = std::find(visible.devices.begin(), visible.devices.end(), found[0]);
  if (at == visible.devices.end()) throw fail("is here, but CUDA_VISIBLE_DEVICES hides it");
  return static_cast<std::size_t>(at - visible.devices.begin());
}

}  // namespace lorikeet::device
