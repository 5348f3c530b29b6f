#include "device/inventory_json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/number_list.h"

namespace lorikeet::device {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return value ? Json(static_cast<std::int64_t>(*value)) : Json();
  else
    return value ? Json(*value) : Json();
}

Json address_json(const std::optional<PciAddress>& address) {
  return address ? Json(address->text()) : Json();
}

Json process_json(const GpuProcess& process) {
  return Json::Object{{"pid", static_cast<std::int64_t>(process.pid)},
                      {"name", or_null(process.name)},
                      {"used_bytes", or_null(process.used_bytes)}};
}

Json nvlink_json(const NvLink& link) {
  static constexpr const char* kPeers[] = {"gpu", "switch", "other"};
  return Json::Object{{"link", static_cast<std::int64_t>(link.link)},
                      {"gb_per_second", or_null(link.gb_per_second)},
                      {"peer", link.peer ? Json(kPeers[static_cast<std::size_t>(*link.peer)]) : Json()},
                      {"peer_bus_id", address_json(link.peer_address)}};
}

Json mig_json(const MigDevice& device) {
  return Json::Object{{"uuid", device.uuid},
                      {"name", or_null(device.name)},
                      {"memory_total_bytes", or_null(device.memory_total_bytes)},
                      {"memory_free_bytes", or_null(device.memory_free_bytes)}};
}

template <typename Item, typename Write>
Json array_of(const std::vector<Item>& items, Write write) {
  Json::Array array;
  for (const Item& item : items) array.push_back(write(item));
  return array;
}

Json gpu_json(const GpuInfo& gpu) {
  const auto list = [](const std::vector<int>& numbers) {
    return numbers.empty() ? Json() : Json(format_number_list(numbers));
  };
  Json throttle;
  if (gpu.throttle_reasons)
    throttle = array_of(*gpu.throttle_reasons, [](const std::string& reason) { return Json(reason); });
  Json ecc = Json::Object{{"on", or_null(gpu.ecc)},
                          {"corrected", or_null(gpu.ecc_errors.corrected)},
                          {"uncorrected", or_null(gpu.ecc_errors.uncorrected)},
                          {"corrected_of_life", or_null(gpu.ecc_errors.corrected_of_life)},
                          {"uncorrected_of_life", or_null(gpu.ecc_errors.uncorrected_of_life)}};
  Json pcie = Json::Object{{"width", or_null(gpu.pcie_width)},
                           {"width_max", or_null(gpu.pcie_width_max)},
                           {"generation", or_null(gpu.pcie_generation)},
                           {"generation_max", or_null(gpu.pcie_generation_max)}};
  Json capability;
  if (gpu.compute_major && gpu.compute_minor)
    capability = std::to_string(*gpu.compute_major) + "." + std::to_string(*gpu.compute_minor);
  return Json::Object{{"bus_id", address_json(gpu.pci)},
                      {"model", or_null(gpu.name)},
                      {"uuid", or_null(gpu.uuid)},
                      {"compute_capability", std::move(capability)},
                      {"memory_total_bytes", or_null(gpu.memory_total_bytes)},
                      {"memory_free_bytes", or_null(gpu.memory_free_bytes)},
                      {"memory_used_bytes", or_null(gpu.memory_used_bytes)},
                      {"processes", array_of(gpu.processes, process_json)},
                      {"cpus", list(gpu.cpus)},
                      {"numa_nodes", list(gpu.numa_nodes)},
                      {"pcie", std::move(pcie)},
                      {"nvlinks", array_of(gpu.nvlinks, nvlink_json)},
                      {"mig", or_null(gpu.mig)},
                      {"mig_devices", array_of(gpu.mig_devices, mig_json)},
                      {"ecc", std::move(ecc)},
                      {"throttle_reasons", std::move(throttle)},
                      {"untold", array_of(gpu.untold, [](const Untold& field) {
                         return Json(Json::Object{{"field", field.field}, {"reason", field.reason}});
                       })}};
}

}  // namespace

Json inventory_json(const Inventory& inventory) {
  const auto lost_json = [](const LostGpu& lost) {
    return Json(Json::Object{{"nvml_index", static_cast<std::int64_t>(lost.nvml_index)},
                             {"description", lost.description},
                             {"reason", lost.reason}});
  };
  return Json::Object{{"driver_version", or_null(inventory.driver_version)},
                      {"absent", inventory.absent.empty() ? Json() : Json(inventory.absent)},
                      {"gpus", array_of(inventory.gpus, gpu_json)},
                      {"lost", array_of(inventory.lost, lost_json)}};
}

}  // namespace lorikeet::device
