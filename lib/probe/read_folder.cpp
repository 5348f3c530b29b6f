#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "io/disk.h"
#include "probe/sources.h"

namespace lorikeet::probe {
namespace {

namespace fs = std::filesystem;
using Kind = FolderFacts::Kind;

struct Magic {
  std::uint32_t number;
  Kind kind;
  const char* name;
};
// Numbers of statfs(2) and linux/magic.h, for those that a run's owner should know of.
constexpr std::array kMagic = {
    Magic{0x6969, Kind::kNetwork, "NFS"},        Magic{0x517B, Kind::kNetwork, "SMB"},
    Magic{0xFE534D42, Kind::kNetwork, "SMB"},    Magic{0xFF534D42, Kind::kNetwork, "SMB"},
    Magic{0x0BD00BD0, Kind::kNetwork, "Lustre"}, Magic{0x00C36400, Kind::kNetwork, "Ceph"},
    Magic{0x01021997, Kind::kNetwork, "9P"},     Magic{0x47504653, Kind::kNetwork, "GPFS"},
    Magic{0x19830326, Kind::kNetwork, "BeeGFS"}, Magic{0x5346414F, Kind::kNetwork, "AFS"},
    Magic{0x65735546, Kind::kFuse, "FUSE"},      Magic{0x01021994, Kind::kMemory, "tmpfs"},
    Magic{0x858458F6, Kind::kMemory, "ramfs"},   Magic{0x794C7630, Kind::kContainerLayer, "overlay"}};

// Those in which the kernel shows itself.
constexpr std::array<std::uint32_t, 5> kKernelsOwn = {0x9FA0 /* proc */, 0x62656572 /* sysfs */,
                                                      0x63677270 /* cgroup2 */, 0x27E0EB /* cgroup */,
                                                      0x64626720 /* debugfs */};

fs::path nearest_existing(const fs::path& folder) {
  std::error_code ignored;
  fs::path place = fs::absolute(folder, ignored);
  while (!fs::exists(place, ignored) && place.has_relative_path()) place = place.parent_path();
  return place;
}

}  // namespace

FolderFacts read_folder(const fs::path& folder) {
  FolderFacts facts{.folder = folder};
  const fs::path place = nearest_existing(folder);
  struct statfs info {};
  std::error_code ignored;
  if (const std::string link = io::link_to_nowhere(folder); !link.empty()) {
    facts.problem = link;
  } else if (!fs::is_directory(place, ignored)) {
    facts.problem = "'" + place.string() + "' is no folder";
  } else if (::statfs(place.c_str(), &info) != 0 || ::access(place.c_str(), W_OK | X_OK) != 0) {
    facts.problem = "'" + place.string() + "': " + std::strerror(errno);
  } else if (std::find(kKernelsOwn.begin(), kKernelsOwn.end(), static_cast<std::uint32_t>(info.f_type)) !=
             kKernelsOwn.end()) {
    facts.problem = "'" + place.string() + "' is of the kernel's own file systems";
  }
  if (!facts.problem.empty()) return facts;
  facts.free_bytes = static_cast<std::uint64_t>(info.f_bavail) * static_cast<std::uint64_t>(info.f_bsize);
  for (const Magic& magic : kMagic) {
    if (static_cast<std::uint32_t>(info.f_type) != magic.number) continue;
    facts.kind = magic.kind;
    facts.filesystem = magic.name;
  }
  return facts;
}

}  // namespace lorikeet::probe
