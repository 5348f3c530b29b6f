#include "probe/sources.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/strings.h"
#include "device/cards.h"
#include "device/cuda_version.h"

namespace lorikeet::probe {
namespace {

namespace fs = std::filesystem;

std::optional<SharedMemoryFacts> read_shared_memory(const fs::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return SharedMemoryFacts{static_cast<std::uint64_t>(info.f_blocks) * info.f_frsize,
                           static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize};
}

// NAME=value lines; '#' begins a comment.
void add_file(const fs::path& path, const std::string& shown, Variables& variables) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t equals = line.find('=');
    const std::string name = trim(line.substr(0, equals));
    if (equals == std::string::npos || !name.starts_with("NCCL_")) continue;
    variables.try_emplace(name, Variable{trim(line.substr(equals + 1)), shown});
  }
}

}  // namespace

Variables read_variables(const char* const* environment, const fs::path& root) {
  Variables variables;
  for (; *environment != nullptr; ++environment) {
    const std::string entry = *environment;
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    variables.try_emplace(entry.substr(0, equals), Variable{entry.substr(equals + 1), ""});
  }
  std::vector<fs::path> files;
  if (const auto named = variables.find("NCCL_CONF_FILE"); named != variables.end()) {
    files.emplace_back(named->second.value);
  } else if (const auto home = variables.find("HOME"); home != variables.end()) {
    files.push_back(fs::path(home->second.value) / ".nccl.conf");
  }
  files.emplace_back("/etc/nccl.conf");
  for (const fs::path& file : files) add_file(root / file.relative_path(), file.string(), variables);
  return variables;
}

std::vector<std::size_t> used_gpus(const device::Inventory& inventory, const RunNeeds& needs) {
  std::set<std::size_t> used;
  for (const device::CudaDevice& device : needs.devices) {
    if (const auto gpu = device::gpu_of(device, inventory)) used.insert(*gpu);
  }
  return {used.begin(), used.end()};
}

GpuFacts read_gpus(const RunNeeds& needs) {
  GpuFacts facts;
  facts.inventory = device::first_snapshot().inventory;
  facts.topology = device::first_snapshot().topology;
  facts.visible = device::visible_devices(facts.inventory);
  facts.driver_cuda = device::driver_cuda_version();
  facts.offered = device::cuda_devices().size();
  facts.start_code = device::cuda_start_code();
  facts.pci = read_pci("/", facts.inventory);
  facts.used = used_gpus(facts.inventory, needs);
  return facts;
}

Sources read_sources(const RunNeeds& needs, bool look_at_gpus) {
  const fs::path root = "/";
  return {.needs = needs,
          .build = build_facts(),
          .variables = read_variables(environ, root),
          .cpu = read_cpu(root),
          .network = read_network(root),
          .shared_memory = read_shared_memory(root / "dev/shm"),
          .output = read_folder(needs.output_dir),
          .gpus = needs.cuda() || look_at_gpus ? read_gpus(needs) : GpuFacts{}};
}

}  // namespace lorikeet::probe
