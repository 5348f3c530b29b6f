#include "apps/verbs/topo_measure.h"

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "apps/verbs/probe_program.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/cards.h"
#include "device/device.h"
#include "device/measured_file.h"
#include "probe/all_reduce_rate.h"
#include "probe/cuda_links.h"

namespace lorikeet::apps {
namespace {

using Rates = std::vector<std::vector<std::optional<double>>>;

std::string cell(const std::optional<double>& rate) { return rate ? format_number("%.1f", *rate) : "-"; }

void print_padded(const std::string& text) {
  constexpr std::size_t kWidth = 8;
  std::cout << text << std::string(kWidth - std::min(text.size(), kWidth - 1), ' ');
}

void print_rates(const char* title, const device::Topology& topology, const Rates& rates) {
  std::cout << "\n" << title << ", GB/s from row to column, one copy at a time:\n";
  print_padded("");
  for (const device::TopologyGpu& gpu : topology.gpus) print_padded(gpu.label);
  for (std::size_t from = 0; from < rates.size(); ++from) {
    std::cout << "\n";
    print_padded(topology.gpus[from].label);
    for (const auto& rate : rates[from]) print_padded(cell(rate));
  }
  std::cout << "\n";
}

Json rates_json(const Rates& rates) {
  Json::Array rows;
  for (const auto& row : rates) {
    Json::Array cells;
    for (const auto& rate : row) cells.push_back(rate ? Json(*rate) : Json());
    rows.emplace_back(std::move(cells));
  }
  return rows;
}

}  // namespace

probe::LinkProbe measure_links(const device::Inventory& inventory, const device::Topology& topology,
                               const device::GpuSet& candidates, std::int64_t payload_bytes) {
  std::vector<int> numbers(topology.gpus.size(), -1);
  const std::vector<device::CudaDevice>& found = device::cuda_devices();
  for (std::size_t number = 0; number < found.size(); ++number) {
    if (const auto gpu = device::gpu_of(found[number], inventory)) numbers[*gpu] = static_cast<int>(number);
  }
  device::GpuSet measurable;
  for (const std::size_t gpu : candidates) {
    if (numbers[gpu] >= 0 && !topology.gpus[gpu].mig.value_or(false)) measurable.push_back(gpu);
  }
  if (measurable.size() < 2) {
    throw Error("[topology] expected at least two GPUs to measure between, got " +
                    std::to_string(measurable.size()) + " that CUDA offers and that are not in MIG mode",
                ErrorKind::kEnvironment);
  }
  const auto timer =
      probe::make_cuda_link_timer(numbers, [](const std::vector<int>& devices, std::int64_t bytes) {
        return probe::all_reduce_rate(probe_program(), devices, bytes);
      });
  const auto file = device::measurements_file(inventory);
  const probe::LinkProgress progress{.next = [](const std::string& what) { log_info("measuring " + what); },
                                     .measured =
                                         [&](const device::Measurements& measured) {
                                           if (file) device::save_measurements(*file, topology, measured);
                                         }};
  probe::LinkProbe probe = probe::probe_links(*timer, topology, measurable, payload_bytes, progress);
  if (file) {
    log_info("kept in " + file->string() + ", which runs on this machine choose by");
  } else {
    log_warning("the measurements can't be kept: there is no cache folder, or a GPU doesn't tell its UUID");
  }
  return probe;
}

void print_probe(const device::Topology& topology, const probe::LinkProbe& probe) {
  print_rates("With peer access", topology, probe.with_peer_access);
  print_rates("Through main memory", topology, probe.through_memory);
  std::cout << "\nSets, GB/s: all-reduce (bus bandwidth); the slowest copy while each sends to the next:\n";
  for (const probe::SetProbe& set : probe.sets) {
    std::string gpus;
    for (const std::size_t gpu : set.gpus) gpus += (gpus.empty() ? "" : ",") + std::to_string(gpu);
    std::cout << gpus << "  "
              << (set.all_reduce_gb_per_second ? cell(set.all_reduce_gb_per_second) : "failed") << "  "
              << cell(set.at_once_gb_per_second) << "\n";
  }
}

Json probe_json(const probe::LinkProbe& probe) {
  Json::Array sets;
  for (const probe::SetProbe& set : probe.sets) {
    Json::Array gpus;
    for (const std::size_t gpu : set.gpus) gpus.emplace_back(static_cast<std::int64_t>(gpu));
    sets.emplace_back(
        Json::Object{{"gpus", std::move(gpus)},
                     {"all_reduce_gb_per_second",
                      set.all_reduce_gb_per_second ? Json(*set.all_reduce_gb_per_second) : Json()},
                     {"at_once_gb_per_second", set.at_once_gb_per_second}});
  }
  return Json::Object{{"with_peer_access_gb_per_second", rates_json(probe.with_peer_access)},
                      {"through_memory_gb_per_second", rates_json(probe.through_memory)},
                      {"sets", std::move(sets)}};
}

}  // namespace lorikeet::apps
