#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "device/device.h"
#include "device/inventory.h"

namespace lorikeet::device {

/// Bytes that one of `sharers` processes on this machine may take of a device's memory. CPU: what the kernel
/// calls available, or what is left of the container's limit, divided among the processes. GPU: what
/// `inventory` says is free, or all where it doesn't, less 6% of the card's memory: the driver's context and
/// fragmentation take some. Empty where nothing tells.
std::optional<std::int64_t> available_memory(const Device& device, const std::vector<CudaDevice>& found,
                                             const Inventory& inventory, int sharers);

/// The same without the 6%: what there is now, whatever it is cut into.
std::optional<std::int64_t> free_memory(const Device& device, const std::vector<CudaDevice>& found,
                                        const Inventory& inventory, int sharers);

/// What available_memory comes to on a device of this kind that nothing else uses: by a card's total memory,
/// by this machine's or its container's for a CPU.
std::optional<std::int64_t> memory_of_kind(const Device& device, const std::vector<CudaDevice>& found,
                                           int sharers);

/// Main memory that is available, from the files of a /proc and a /sys/fs/cgroup (version 2; absent is fine).
std::optional<std::int64_t> available_main_memory(const std::filesystem::path& proc,
                                                  const std::filesystem::path& cgroup);
/// The same of all that there is, in use or not.
std::optional<std::int64_t> total_main_memory(const std::filesystem::path& proc,
                                              const std::filesystem::path& cgroup);

}  // namespace lorikeet::device
