#include "probe/network_facts.h"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace lorikeet::probe {
namespace {

namespace fs = std::filesystem;

// Names in a folder, sorted; nullopt where there is none.
std::optional<std::vector<std::string>> names_in(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator it(folder, error);
  if (error) return std::nullopt;
  std::vector<std::string> names;
  for (const fs::directory_iterator end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<FabricPort> read_fabric(const fs::path& folder) {
  std::vector<FabricPort> ports;
  for (const std::string& adapter : names_in(folder).value_or(std::vector<std::string>{})) {
    std::error_code none;
    const std::string driver = fs::read_symlink(folder / adapter / "device/driver", none).filename().string();
    for (const std::string& port :
         names_in(folder / adapter / "ports").value_or(std::vector<std::string>{})) {
      const fs::path place = folder / adapter / "ports" / port;
      const std::string layer = line_of(place / "link_layer");
      ports.push_back({.adapter = adapter,
                       .port = port,
                       .driver = driver,
                       .active = line_of(place / "state").find("ACTIVE") != std::string::npos,
                       .infiniband = layer == "InfiniBand",
                       .verbs = layer == "InfiniBand" || layer == "Ethernet"});
    }
  }
  return ports;
}

// "Max locked memory         8388608              8388608              bytes": the soft limit.
std::optional<std::uint64_t> read_locked_memory(const fs::path& limits) {
  constexpr std::string_view kKey = "Max locked memory";
  std::ifstream file(limits);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    std::istringstream rest(line.substr(kKey.size()));
    std::uint64_t bytes = 0;
    return rest >> bytes ? std::optional(bytes) : std::nullopt;  // "unlimited"
  }
  return std::nullopt;
}

bool can_load(const char* library) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

}  // namespace

bool NetworkFacts::infiniband_active() const {
  return std::any_of(fabric.begin(), fabric.end(),
                     [](const FabricPort& port) { return port.active && port.infiniband; });
}

bool NetworkFacts::has_efa() const {
  return std::any_of(fabric.begin(), fabric.end(),
                     [](const FabricPort& port) { return port.driver == "efa"; });
}

NetworkFacts read_network(const fs::path& root) {
  NetworkFacts facts;
  if (const auto names = names_in(root / "sys/class/net")) {
    facts.interfaces.emplace();
    for (const std::string& name : *names) {
      // Loopback's state is "unknown".
      facts.interfaces->push_back({name, line_of(root / "sys/class/net" / name / "operstate") != "down"});
    }
  }
  facts.fabric = read_fabric(root / "sys/class/infiniband");
  for (const std::string& name : names_in(root / "dev/infiniband").value_or(std::vector<std::string>{})) {
    facts.verbs_devices = facts.verbs_devices || name.starts_with("uverbs");
  }
  facts.verbs_library = !facts.fabric.empty() && can_load("libibverbs.so.1");
  facts.net_plugin = facts.has_efa() && (can_load("libnccl-net.so") || can_load("libnccl-net-ofi.so"));
  facts.locked_memory_bytes = read_locked_memory(root / "proc/self/limits");
  return facts;
}

}  // namespace lorikeet::probe
