#include "recipes/devices.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "device/cards.h"
#include "device/cpu_affinity.h"
#include "device/memory.h"
#include "device/number_list.h"
#include "probe/checks.h"

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
  // Not at::hasCUDA(), which is false as well where the driver is too old or doesn't start: preflight says
  // that.
  const bool built = probe::build_facts().cuda != 0;
  Choice choice{device::select(setting, built, found, order.numbers, ranks), {}};
  const bool free_choice = choice.devices[0].is_cuda() && !setting.index && setting.card.empty();
  if (free_choice) choice.reason = order.reason;
  return choice;
}

// On the CPU although there are GPUs: never without a word.
void require_no_idle_gpus() {
  probe::Sources sources{.build = probe::build_facts()};
  sources.gpus = probe::read_gpus({});
  probe::enforce(probe::check_cuda_start(sources));
}

std::vector<device::Device> choose_and_tell(const config::DeviceSetting& setting, int ranks) {
  Choice choice = choose(setting, ranks);
  if (setting.kind == config::DeviceSetting::Kind::kAuto && !choice.devices[0].is_cuda())
    require_no_idle_gpus();
  if (!choice.reason.empty()) {
    std::vector<std::string> names;
    names.reserve(choice.devices.size());
    for (const device::Device& device : choice.devices) names.push_back(device.name());
    log_info("cards: " + join(names, ", ") + " of " + std::to_string(device::cuda_devices().size()) + ": " +
             choice.reason);
  }
  return std::move(choice.devices);
}

std::vector<int> cpus_near(const device::Device& device) {
  const device::Inventory& inventory = device::first_snapshot().inventory;
  const auto gpu =
      device::gpu_of(device::cuda_devices().at(static_cast<std::size_t>(device.index)), inventory);
  return gpu ? inventory.gpus[*gpu].cpus : std::vector<int>();
}

// Memory that a process of the card's own NUMA node has is the nearest for copies to and from it. The ranks
// that are bound to the same cores share them, so that each gets its part of them as threads.
void bind_near(const device::Device& mine, RankGroup& group) {
  const std::vector<int> cpus = mine.is_cuda() ? device::bind_to_cpus(cpus_near(mine)) : std::vector<int>();
  const std::string own = device::format_number_list(cpus);
  const std::vector<std::string> here = group.collect_on_machine("the CPU cores of a rank", own);
  if (cpus.empty()) return;
  const auto sharers = std::count(here.begin(), here.end(), own);
  const int threads = std::max(1, static_cast<int>(std::ssize(cpus) / sharers));
  if (at::get_num_threads() > threads) at::set_num_threads(threads);
  log_info("bound to the " + std::to_string(cpus.size()) + " CPU cores nearest to " + mine.name());
}

// Whether each rank of this machine sees one card, and each another: a launcher has given them out
// (srun --gpus-per-task=1).
bool have_a_card_each(RankGroup& group) {
  const auto& found = device::cuda_devices();
  const auto texts = group.collect_on_machine("the card of a rank", found.size() == 1 ? found[0].uuid : "");
  const std::set<std::string> different(texts.begin(), texts.end());
  return different.size() == texts.size() && !different.contains("");
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
  const bool a_card_each = have_a_card_each(group);
  std::string numbers;  // of cards; none on CPUs
  if (placement.local_rank == 0) {
    std::vector<std::string> texts;
    std::vector<device::Device> chosen = choose_and_tell(setting, a_card_each ? 1 : placement.local_size);
    chosen.resize(ranks, chosen[0]);  // by the number that each rank gives its own
    for (const device::Device& device : chosen) {
      if (device.is_cuda()) texts.push_back(std::to_string(device.index));
    }
    numbers = join(texts, ",");
  }
  numbers = group.share_on_machine("devices", numbers);
  std::vector<device::Device> devices;
  for (const std::string& number : split(numbers, ',')) {
    if (!number.empty()) devices.push_back({device::Device::Kind::kCuda, std::stoi(number)});
  }
  devices.resize(ranks);  // CPUs, where no card was chosen
  bind_near(devices.at(static_cast<std::size_t>(placement.local_rank)), group);
  return devices;
}

std::optional<std::int64_t> available_memory(const device::Device& device, int sharers) {
  const device::Inventory inventory =
      device.is_cuda() ? device::first_snapshot().inventory : device::Inventory{};
  return device::available_memory(device, device::cuda_devices(), inventory, sharers);
}

LeastMemory least_memory(const device::Device& device, RankGroup& group) {
  const int sharers = group.placement().local_size;
  const auto least = [&](const std::string& name, std::optional<std::int64_t> own) {
    const std::int64_t bytes = group.least(name, own.value_or(-1));
    return bytes >= 0 ? std::optional(bytes) : std::nullopt;
  };
  const auto& found = device::cuda_devices();
  const device::Inventory inventory =
      device.is_cuda() ? device::first_snapshot().inventory : device::Inventory{};
  return {.available = least("available memory", device::available_memory(device, found, inventory, sharers)),
          .free = least("free memory", device::free_memory(device, found, inventory, sharers)),
          .of_kind = least("memory of the kind", device::memory_of_kind(device, found, sharers))};
}

}  // namespace lorikeet::recipes
