#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "device/device.h"

namespace lorikeet::device {

/// Bytes that one of `sharers` processes on this machine may take of a device's memory. CPU: what the kernel
/// calls available, or what is left of the container's limit, divided among the processes. GPU: 94% of the
/// card's, for the driver's context and fragmentation take some. Empty where nothing tells.
std::optional<std::int64_t> available_memory(const Device& device, const std::vector<CudaDevice>& found,
                                             int sharers);

/// The same of main memory, from the files of a /proc and a /sys/fs/cgroup (version 2; absent is fine).
std::optional<std::int64_t> available_main_memory(const std::filesystem::path& proc,
                                                  const std::filesystem::path& cgroup);

}  // namespace lorikeet::device
