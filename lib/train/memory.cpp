#include "train/memory.h"

#include <ATen/DeviceAccelerator.h>
#include <malloc.h>

#include <fstream>
#include <string>

namespace lorikeet::train {
namespace {

std::uint64_t status_kib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(key)) return std::stoull(line.substr(key.size()));
  }
  return 0;
}

}  // namespace

std::uint64_t peak_resident_bytes() { return status_kib("VmHWM:") * 1024; }
std::uint64_t resident_bytes() { return status_kib("VmRSS:") * 1024; }

void release_free_heap() { malloc_trim(/*pad=*/0); }

std::uint64_t peak_memory_bytes(const at::Device& device) {
  if (!device.is_cuda()) return peak_resident_bytes();
  const auto stats = at::accelerator::getDeviceStats(device.index());
  return static_cast<std::uint64_t>(stats.allocated_bytes[0].peak);  // [0]: over all pools
}

}  // namespace lorikeet::train
