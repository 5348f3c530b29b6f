#include "io/disk.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"

namespace lorikeet::io {
namespace {

constexpr std::string_view kProbePrefix = ".lorikeet-probe-";
constexpr std::size_t kProbeEnding = 6;  // of mkostemp's

// What the system says no to, where another path would be no better written.
constexpr int kRefusals[] = {EACCES, EPERM, EROFS, ENOSPC, EDQUOT, EIO, EMFILE, ENFILE};

}  // namespace

std::uint64_t free_space_bytes(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::filesystem::path place = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(place, ignored) && place.has_relative_path()) place = place.parent_path();
  struct statvfs info {};
  if (::statvfs(place.c_str(), &info) != 0) {
    throw Error("[disk] can't find out the free space of '" + escape_control(place.string()) +
                    "': " + std::strerror(errno),
                ErrorKind::kEnvironment);
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

void require_free_space(const std::filesystem::path& folder, std::uint64_t bytes) {
  const std::uint64_t free = free_space_bytes(folder);
  if (free >= bytes) return;
  throw Error("[disk] expected at least " + format_bytes(bytes) + " free for '" +
                  escape_control(folder.string()) + "', got " + format_bytes(free) +
                  "; free some space or choose another folder",
              ErrorKind::kEnvironment);
}

std::string link_to_nowhere(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (auto place = std::filesystem::absolute(folder, ignored); place.has_relative_path();
       place = place.parent_path()) {
    if (!std::filesystem::is_symlink(place, ignored) || std::filesystem::exists(place, ignored)) continue;
    return "'" + escape_control(place.string()) + "' is a link to '" +
           escape_control(std::filesystem::read_symlink(place, ignored).string()) + "', which isn't there";
  }
  return "";
}

void make_writable_folder(const std::filesystem::path& folder) {
  const auto fail = [&](const std::error_code& reason) {
    const bool refused =
        std::find(std::begin(kRefusals), std::end(kRefusals), reason.value()) != std::end(kRefusals);
    throw Error("[output] can't write into the folder '" + escape_control(folder.string()) +
                    "': " + reason.message() + "; choose another one",
                refused ? ErrorKind::kEnvironment : ErrorKind::kUsage);
  };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::error_code ignored;
  if (const std::string link = link_to_nowhere(folder); !link.empty())
    throw Error("[output] " + link + "; make that folder, or choose another one");
  if (!std::filesystem::is_directory(folder, ignored))
    fail(error ? error : std::make_error_code(std::errc::not_a_directory));
  // Making a file is the one test that also knows read-only file systems, quotas and root.
  std::string probe = (folder / (std::string(kProbePrefix) + std::string(kProbeEnding, 'X'))).string();
  const UniqueFd fd(::mkostemp(probe.data(), O_CLOEXEC));
  if (!fd) fail(std::error_code(errno, std::generic_category()));
  ::unlink(probe.c_str());
}

bool is_probe_name(std::string_view name) {
  return name.starts_with(kProbePrefix) && name.size() == kProbePrefix.size() + kProbeEnding;
}

}  // namespace lorikeet::io
