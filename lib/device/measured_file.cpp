#include "device/measured_file.h"

#include <cstdint>
#include <string>
#include <system_error>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "device/topology_json.h"

namespace lorikeet::device {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

bool same_gpus(const Topology& a, const Topology& b) {
  if (a.gpus.size() != b.gpus.size()) return false;
  for (std::size_t i = 0; i < a.gpus.size(); ++i) {
    if (!a.gpus[i].uuid || a.gpus[i].uuid != b.gpus[i].uuid) return false;
  }
  return true;
}

// A run that sees some of the cards measures only those.
Measurements merged(Measurements all, const Measurements& newer) {
  if (all.pairs.empty()) {
    all.pairs = newer.pairs;
  } else {
    for (std::size_t i = 0; i < newer.pairs.size(); ++i) {
      for (std::size_t j = 0; j < newer.pairs[i].size(); ++j) {
        if (newer.pairs[i][j]) all.pairs[i][j] = newer.pairs[i][j];
      }
    }
  }
  for (const MeasuredSet& set : newer.sets) {
    std::erase_if(all.sets, [&](const MeasuredSet& old) { return old.gpus == set.gpus; });
    all.sets.push_back(set);
  }
  return all;
}

}  // namespace

std::optional<std::filesystem::path> measurements_file(const Inventory& inventory) {
  const auto folder = cache_folder();
  if (!folder || inventory.gpus.empty()) return std::nullopt;
  std::string key = inventory.driver_version.value_or("");
  for (const GpuInfo& gpu : inventory.gpus) {
    if (!gpu.uuid) return std::nullopt;
    key += "\n" + *gpu.uuid;
  }
  return *folder / "links" / (sha256_hex(key).substr(0, 16) + ".json");
}

Measurements load_measurements(const std::filesystem::path& file, const Topology& topology) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  try {
    const SavedTopology saved = parse_saved_topology(read_file(file, kMostBytes), file.string());
    if (same_gpus(saved.topology, topology)) return LinkModel(topology, saved.measured).measured();
    log_warning("the measured links in '" + file.string() + "' are of other cards; they are not used");
  } catch (const Error& error) {
    log_warning(std::string("the measured links can't be read and are not used: ") + error.what());
  }
  return {};
}

void save_measurements(const std::filesystem::path& file, const Topology& topology,
                       const Measurements& measured) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);  // writing says what is wrong
  const Measurements all = merged(load_measurements(file, topology), measured);
  write_file_atomic(file, topology_json(topology, all, {}).dump(2) + "\n");
}

}  // namespace lorikeet::device
