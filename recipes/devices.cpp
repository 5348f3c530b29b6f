#include "recipes/devices.h"

#include <ATen/Context.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "device/cards.h"
#include "device/cpu_affinity.h"
#include "device/memory.h"

namespace lorikeet::recipes {
namespace {

device::CardOrder card_order(int ranks) {
  const auto& found = device::cuda_devices();
  return found.empty() ? device::CardOrder{}
                       : device::preferred_cards(found, device::first_snapshot(), ranks);
}

// Also tells the log why these.
std::vector<device::Device> choose(const config::DeviceSetting& setting, int ranks) {
  std::vector<device::Device> devices = choose_devices(setting, ranks);
  const std::string reason = card_order(ranks).reason;
  const bool free_choice = devices[0].is_cuda() && !setting.index && setting.card.empty();
  if (free_choice && !reason.empty()) {
    std::vector<std::string> names;
    names.reserve(devices.size());
    for (const device::Device& device : devices) names.push_back(device.name());
    log_info("cards: " + join(names, ", ") + " of " + std::to_string(device::cuda_devices().size()) + ": " +
             reason);
  }
  return devices;
}

// Memory that a process of the card's own NUMA node has is the nearest for copies to and from it.
void bind_near(const device::Device& device) {
  const auto& found = device::cuda_devices();
  const auto gpu =
      device::gpu_of(found.at(static_cast<std::size_t>(device.index)), device::first_snapshot().inventory);
  if (!gpu) return;
  const std::vector<int> cpus = device::bind_to_cpus(device::first_snapshot().inventory.gpus[*gpu].cpus);
  if (!cpus.empty())
    log_info("bound to the " + std::to_string(cpus.size()) + " CPU cores nearest to " + device.name());
}

}  // namespace

std::vector<device::Device> choose_devices(const config::DeviceSetting& setting, int ranks) {
  // at::hasCUDA() says whether libtorch's CUDA half is linked in and usable.
  return device::select(setting, at::hasCUDA(), device::cuda_devices(), card_order(ranks).numbers, ranks);
}

device::Device choose_device(const config::DeviceSetting& setting) { return choose(setting, 1)[0]; }

device::Device choose_device(const config::DeviceSetting& setting, RankGroup& group) {
  if (group.alone()) return choose_device(setting);
  const comm::Placement& placement = group.placement();
  std::string numbers;
  if (placement.local_rank == 0) {
    const std::vector<device::Device> devices = choose(setting, placement.local_size);
    if (devices[0].is_cuda()) {
      std::vector<std::string> texts;
      texts.reserve(devices.size());
      for (const device::Device& device : devices) texts.push_back(std::to_string(device.index));
      numbers = join(texts, ",");
    }
  }
  numbers = group.share_on_machine("devices", numbers);
  if (numbers.empty()) return {};
  const std::string mine = split(numbers, ',').at(static_cast<std::size_t>(placement.local_rank));
  const device::Device device{device::Device::Kind::kCuda, std::stoi(mine)};
  bind_near(device);
  return device;
}

std::optional<std::int64_t> available_memory(const device::Device& device, int sharers) {
  const device::Inventory inventory =
      device.is_cuda() ? device::first_snapshot().inventory : device::Inventory{};
  return device::available_memory(device, device::cuda_devices(), inventory, sharers);
}

}  // namespace lorikeet::recipes
