#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "device/number_list.h"
#include "probe/sources.h"

namespace lorikeet::probe {
namespace {

namespace fs = std::filesystem;

// What "quota period" or "max period" of cpu.max means in CPUs.
std::optional<double> quota_of_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::optional<double> quota_of_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0
             ? std::optional(quota / period)
             : std::nullopt;
}

// The least quota of a group and those above it, up to the mounted hierarchy's root. In a container its own
// group may be mounted as that root, under whatever path the process is listed.
template <typename Quota>
std::optional<double> least(const fs::path& mounted, const std::string& path, const Quota& quota) {
  std::optional<double> found;
  fs::path group = mounted / fs::path(path).relative_path();
  constexpr int kDeepest = 64;
  for (int depth = 0; depth < kDeepest; ++depth) {
    if (const auto one = quota(group)) found = std::min(found.value_or(*one), *one);
    if (group == mounted || !group.has_relative_path()) break;
    group = group.parent_path();
  }
  return found;
}

std::optional<double> read_quota(const fs::path& root) {
  const fs::path mounted = root / "sys/fs/cgroup";
  std::optional<double> found;
  const auto lower = [&](const std::optional<double>& quota) {
    if (quota) found = std::min(found.value_or(*quota), *quota);
  };
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1
    const std::vector<std::string> fields = split(line, ':');
    if (fields.size() < 3) continue;
    const std::string path = trim(fields[2]) == "/" ? "" : trim(fields[2]);
    const std::vector<std::string> controllers = split(fields[1], ',');
    if (fields[1].empty()) {
      lower(least(mounted, path, quota_of_v2));
    } else if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end()) {
      lower(least(mounted / fields[1], path, quota_of_v1));
      lower(least(mounted / "cpu", path, quota_of_v1));
    }
  }
  return found;
}

}  // namespace

CpuFacts read_cpu(const fs::path& root) {
  CpuFacts facts;
  std::ifstream file(root / "proc/self/status");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kKey = "Cpus_allowed_list:";
    if (!line.starts_with(kKey)) continue;
    if (const auto cpus = device::parse_number_list(trim(line.substr(kKey.size()))))
      facts.allowed = cpus->size();
  }
  facts.quota = read_quota(root);
  return facts;
}

}  // namespace lorikeet::probe
