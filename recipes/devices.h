#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/settings.h"
#include "device/device.h"
#include "recipes/rank_group.h"

namespace lorikeet::recipes {

/// The device that the config's `device` means for a process on its own.
device::Device choose_device(const config::DeviceSetting& setting);

/// The devices that `device` means for `ranks` processes of this machine.
std::vector<device::Device> choose_devices(const config::DeviceSetting& setting, int ranks);

/// The devices of all ranks of this machine, by local rank. The first of them chooses, so that none sees
/// cards as taken by another. On a GPU among several ranks, the process is bound to the CPU cores that are
/// nearest to its card.
std::vector<device::Device> choose_devices(const config::DeviceSetting& setting, RankGroup& group);

/// Bytes that this process may take of the device's memory; empty where nothing tells.
std::optional<std::int64_t> available_memory(const device::Device& device, int sharers);

/// The least of all ranks' device memory; empty where one can't tell (see device/memory.h).
struct LeastMemory {
  std::optional<std::int64_t> available, free, of_kind;
};
LeastMemory least_memory(const device::Device& device, RankGroup& group);

}  // namespace lorikeet::recipes
