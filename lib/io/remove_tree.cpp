#include "io/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"

namespace lorikeet::io {
namespace {

[[noreturn]] void fail(const std::string& name) {
  const char* reason = std::strerror(errno);
  throw Error("[file] can't remove '" + escape_control(name) + "': " + reason, ErrorKind::kEnvironment);
}

UniqueFd open_folder(int parent, const std::string& name) {
  return UniqueFd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// All names in the folder, `last` at the end.
std::vector<std::string> names_in(int folder, const std::string& last, const std::string& shown) {
  // A second descriptor: fdopendir takes its own over.
  const int duplicate = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (duplicate < 0) fail(shown);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(duplicate), ::closedir);
  if (!stream) {
    ::close(duplicate);
    fail(shown);
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return name != last; });
  return names;
}

dev_t device_of(int fd, const std::string& shown) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(shown);
  return info.st_dev;
}

void remove_in(int parent, const std::string& name, const std::string& last, const std::string& shown,
               dev_t device, int depth) {
  static constexpr int kMaxDepth = 64;
  const UniqueFd folder = open_folder(parent, name);
  if (!folder) fail(shown);
  if (depth > kMaxDepth || device_of(folder.get(), shown) != device) {
    throw Error("[file] can't remove '" + escape_control(shown) +
                    "': it is nested too deep or on another file system; remove it by hand",
                ErrorKind::kEnvironment);
  }
  for (const std::string& entry : names_in(folder.get(), last, shown)) {
    struct stat info {};
    if (::fstatat(folder.get(), entry.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) fail(shown + "/" + entry);
    if (S_ISDIR(info.st_mode)) {
      remove_in(folder.get(), entry, "", shown + "/" + entry, device, depth + 1);
    } else if (::unlinkat(folder.get(), entry.c_str(), 0) != 0) {
      fail(shown + "/" + entry);
    }
  }
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) fail(shown);
}

}  // namespace

void remove_tree(const std::filesystem::path& parent, const std::string& name, const std::string& last) {
  const std::string shown = (parent / name).string();
  const UniqueFd fd(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail(shown);
  remove_in(fd.get(), name, last, shown, device_of(fd.get(), shown), 0);
}

}  // namespace lorikeet::io
