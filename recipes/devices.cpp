#include "recipes/devices.h"

#include <ATen/Context.h>

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "device/cards.h"
#include "device/cpu_affinity.h"
#include "device/memory.h"

namespace lorikeet::recipes {
namespace {

struct Choice {
  std::vector<device::Device> devices;
  std::string reason;  // why these cards; empty where there was nothing to choose
};

Choice choose(const config::DeviceSetting& setting, int ranks) {
  const auto& found = device::cuda_devices();
  device::CardOrder order;
  if (!found.empty()) order = device::preferred_cards(found, device::first_snapshot(), ranks);
  // at::hasCUDA() says whether libtorch's CUDA half is linked in and usable.
  Choice choice{device::select(setting, at::hasCUDA(), found, order.numbers, ranks), {}};
  const bool free_choice = choice.devices[0].is_cuda() && !setting.index && setting.card.empty();
  if (free_choice) choice.reason = order.reason;
  return choice;
}

std::vector<device::Device> choose_and_tell(const config::DeviceSetting& setting, int ranks) {
  Choice choice = choose(setting, ranks);
  if (!choice.reason.empty()) {
    std::vector<std::string> names;
    names.reserve(choice.devices.size());
    for (const device::Device& device : choice.devices) names.push_back(device.name());
    log_info("cards: " + join(names, ", ") + " of " + std::to_string(device::cuda_devices().size()) + ": " +
             choice.reason);
  }
  return std::move(choice.devices);
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
  return choose(setting, ranks).devices;
}

device::Device choose_device(const config::DeviceSetting& setting) { return choose_and_tell(setting, 1)[0]; }

std::vector<device::Device> choose_devices(const config::DeviceSetting& setting, RankGroup& group) {
  const comm::Placement& placement = group.placement();
  if (group.alone()) return choose_and_tell(setting, 1);
  const auto ranks = static_cast<std::size_t>(placement.local_size);
  std::string numbers;  // of cards; none on CPUs
  if (placement.local_rank == 0) {
    std::vector<std::string> texts;
    for (const device::Device& device : choose_and_tell(setting, placement.local_size)) {
      if (device.is_cuda()) texts.push_back(std::to_string(device.index));
    }
    numbers = join(texts, ",");
  }
  numbers = group.share_on_machine("devices", numbers);
  if (numbers.empty()) return std::vector<device::Device>(ranks);
  std::vector<device::Device> devices;
  devices.reserve(ranks);
  for (const std::string& number : split(numbers, ','))
    devices.push_back({device::Device::Kind::kCuda, std::stoi(number)});
  bind_near(devices.at(static_cast<std::size_t>(placement.local_rank)));
  return devices;
}

std::optional<std::int64_t> available_memory(const device::Device& device, int sharers) {
  const device::Inventory inventory =
      device.is_cuda() ? device::first_snapshot().inventory : device::Inventory{};
  return device::available_memory(device, device::cuda_devices(), inventory, sharers);
}

}  // namespace lorikeet::recipes
