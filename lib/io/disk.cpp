#include "io/disk.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"

namespace lorikeet::io {

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

void make_writable_folder(const std::filesystem::path& folder) {
  const auto fail = [&](const std::string& reason) {
    throw Error("[output] can't write into the folder '" + escape_control(folder.string()) + "': " + reason +
                "; choose another one");
  };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) fail(error ? error.message() : "it is not a folder");
  // Making a file is the one test that also knows read-only file systems, quotas and root.
  std::string probe = (folder / ".lorikeet-probe-XXXXXX").string();
  const UniqueFd fd(::mkostemp(probe.data(), O_CLOEXEC));
  if (!fd) fail(std::strerror(errno));
  ::unlink(probe.c_str());
}

}  // namespace lorikeet::io
