#include "recipes/preflight.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "comm/rank_processes.h"
#include "device/cards.h"
#include "probe/checks.h"
#include "recipes/devices.h"
#include "recipes/model_session.h"

namespace lorikeet::recipes {
namespace {

probe::RunNeeds needs_on(const std::vector<device::Device>& devices, const config::Settings& settings) {
  probe::RunNeeds needs{.ranks = static_cast<int>(devices.size()),
                        .cpu_is_meant = settings.device.kind == config::DeviceSetting::Kind::kCpu,
                        .threads = at::get_num_threads(),
                        .deterministic = settings.training.deterministic,
                        .output_dir = settings.checkpoint.output_dir};
  for (const device::Device& device : devices) {
    if (device.is_cuda())
      needs.devices.push_back(device::cuda_devices().at(static_cast<std::size_t>(device.index)));
  }
  return needs;
}

}  // namespace

probe::RunNeeds needs_of(const config::Settings& settings, std::optional<int> ranks, std::optional<int> nodes,
                         probe::Findings& findings) {
  std::vector<device::Device> devices(1);
  try {
    devices = choose_devices(settings.device, ranks.value_or(1));
    const bool any = devices[0].is_cuda() && !settings.device.index && settings.device.card.empty();
    if (any && !ranks)
      devices = choose_devices(settings.device, static_cast<int>(device::cuda_devices().size()));
  } catch (const Error& error) {
    findings.emplace_back("device", probe::Severity::kUnfit, error.what());
  }
  probe::RunNeeds needs = needs_on(devices, settings);
  needs.nodes = nodes;
  // Several processes will be started, by `lorikeet run`, which shares the cores among them.
  if (needs.ranks > 1 && std::getenv("OMP_NUM_THREADS") == nullptr)
    needs.threads = comm::threads_of_each(needs.ranks);
  try {
    needs.policy = choose_policy(settings.precision, devices[0]);
  } catch (const Error& error) {
    findings.emplace_back("precision", probe::Severity::kUnfit, error.what());
  }
  return needs;
}

std::vector<probe::ProbedGpu> probed_gpus(const probe::Sources& sources) {
  const auto& found = device::cuda_devices();
  std::vector<probe::ProbedGpu> gpus;
  for (const device::CudaDevice& device : sources.needs.devices) {
    const auto same = [&](const device::CudaDevice& one) {
      return one.uuid == device.uuid && one.pci == device.pci;
    };
    const auto number = std::find_if(found.begin(), found.end(), same) - found.begin();
    probe::ProbedGpu gpu{.number = static_cast<int>(number), .name = device.name};
    const device::Inventory& inventory = sources.gpus.inventory;
    if (const auto index = device::gpu_of(device, inventory)) {
      gpu.pcie_width = inventory.gpus[*index].pcie_width_max;
      gpu.pcie_generation = inventory.gpus[*index].pcie_generation_max;
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

void preflight(const config::Settings& settings, RankGroup& group, const std::vector<device::Device>& devices,
               const precision::Policy& policy, const probe::CpuFacts& cpus) {
  const comm::Placement& placement = group.placement();
  probe::Findings findings;
  if (placement.local_rank == 0) {
    probe::RunNeeds needs = needs_on(devices, settings);
    needs.policy = policy;
    needs.nodes = placement.nodes;
    probe::Sources sources = probe::read_sources(needs, /*look_at_gpus=*/false);
    sources.cpu = cpus;
    findings = probe::run_checks(sources, /*with_well=*/false);
  }
  if (probe::worst(findings) == probe::Severity::kUnfit || group.alone()) return probe::enforce(findings);
  const auto of_all = group.collect("preflight", join(probe::warnings_of(findings), "\n"));
  if (!group.first()) return;
  for (std::size_t rank = 0; rank < of_all.size(); ++rank) {
    if (of_all[rank].empty()) continue;
    const std::string where = rank == 0 ? "" : "the machine of rank " + std::to_string(rank) + ": ";
    for (const std::string& warning : split(of_all[rank], '\n')) log_warning(where + warning);
  }
}

}  // namespace lorikeet::recipes
