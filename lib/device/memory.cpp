#include "device/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "device/cards.h"

namespace lorikeet::device {
namespace {

constexpr double kLostShareOfCard = 0.06;

// A file that holds one number; cgroup's "max" is none.
std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// Pages of files that a container's use counts, and that the kernel takes back when memory is short.
std::int64_t file_pages(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::int64_t bytes = 0, value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "inactive_file" || name == "active_file") bytes += value;
  }
  return bytes;
}

// A line of /proc/meminfo, in bytes.
std::optional<std::int64_t> memory_line(const std::filesystem::path& proc, std::string_view key) {
  std::ifstream meminfo(proc / "meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  }
  return std::nullopt;
}

constexpr const char *kProc = "/proc", *kCgroup = "/sys/fs/cgroup";

}  // namespace

std::optional<std::int64_t> available_main_memory(const std::filesystem::path& proc,
                                                  const std::filesystem::path& cgroup) {
  std::optional<std::int64_t> available = memory_line(proc, "MemAvailable:");
  const auto limit = number_in(cgroup / "memory.max"), used = number_in(cgroup / "memory.current");
  if (limit && used) {
    const std::int64_t held = std::max<std::int64_t>(*used - file_pages(cgroup / "memory.stat"), 0);
    const std::int64_t left = std::max<std::int64_t>(*limit - held, 0);
    available = std::min(available.value_or(left), left);
  }
  return available;
}

std::optional<std::int64_t> total_main_memory(const std::filesystem::path& proc,
                                              const std::filesystem::path& cgroup) {
  const auto total = memory_line(proc, "MemTotal:"), limit = number_in(cgroup / "memory.max");
  return total && limit ? std::min(total, limit) : (total ? total : limit);
}

std::optional<std::int64_t> free_memory(const Device& device, const std::vector<CudaDevice>& found,
                                        const Inventory& inventory, int sharers) {
  if (!device.is_cuda()) {
    const auto all = available_main_memory(kProc, kCgroup);
    return all ? std::optional(*all / sharers) : std::nullopt;
  }
  const auto index = static_cast<std::size_t>(device.index);
  if (index >= found.size()) return std::nullopt;
  auto free = static_cast<std::int64_t>(found[index].memory_bytes);
  const auto gpu = gpu_of(found[index], inventory);
  // The free memory of a card in slices says nothing of one slice's.
  if (gpu && !inventory.gpus[*gpu].mig.value_or(false) && inventory.gpus[*gpu].memory_free_bytes)
    free = std::min(free, static_cast<std::int64_t>(*inventory.gpus[*gpu].memory_free_bytes));
  return free;
}

std::optional<std::int64_t> available_memory(const Device& device, const std::vector<CudaDevice>& found,
                                             const Inventory& inventory, int sharers) {
  const auto free = free_memory(device, found, inventory, sharers);
  if (!free || !device.is_cuda()) return free;
  const auto total = static_cast<double>(found[static_cast<std::size_t>(device.index)].memory_bytes);
  return static_cast<std::int64_t>(std::max(static_cast<double>(*free) - kLostShareOfCard * total, 0.0));
}

std::optional<std::int64_t> memory_of_kind(const Device& device, const std::vector<CudaDevice>& found,
                                           int sharers) {
  if (device.is_cuda()) return available_memory(device, found, Inventory{}, sharers);
  const auto all = total_main_memory(kProc, kCgroup);
  return all ? std::optional(*all / sharers) : std::nullopt;
}

}  // namespace lorikeet::device
