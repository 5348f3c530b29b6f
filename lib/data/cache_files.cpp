#include "data/cache_files.h"

#include <fcntl.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX's
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <optional>

#include "base/file.h"

namespace lorikeet::data {
namespace {

constexpr std::time_t kHour = 3600, kDay = 24 * kHour;

// The writer of a temporary file of this name, if it is one of the cache's.
std::optional<pid_t> writer_of(std::string_view name) {
  static constexpr std::size_t kKeyDigits = 64;
  static constexpr std::string_view kMiddle = ".tokens.tmp-";
  const std::string_view key = name.substr(0, kKeyDigits);
  const bool is_key = key.size() == kKeyDigits && std::all_of(key.begin(), key.end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                      });
  if (!is_key || !name.substr(kKeyDigits).starts_with(kMiddle)) return std::nullopt;
  const std::string_view digits = name.substr(kKeyDigits + kMiddle.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (error != std::errc() || end != digits.data() + digits.size() || pid <= 0) return std::nullopt;
  return pid;
}

bool runs_here(pid_t pid) { return ::kill(pid, 0) == 0 || errno == EPERM; }

}  // namespace

std::string prepare_cache_folder(const std::filesystem::path& folder) {
  std::error_code ignored;  // mkdir says what is wrong
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), ignored);
  if (::mkdir(folder.c_str(), 0700) == 0) return "";
  if (errno != EEXIST) return std::string("it can't be made: ") + std::strerror(errno);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return "it is no folder";
  const mode_t others = info.st_uid == ::geteuid() ? S_IWOTH : S_IWOTH | S_IWGRP;
  if ((info.st_mode & S_ISVTX) == 0 && (info.st_mode & others) != 0)
    return "others may replace files in it, for it has no sticky bit";
  return "";
}

bool is_own_file(const std::filesystem::path& file) {
  struct stat info {};
  return ::lstat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int remove_stale_temporaries(const std::filesystem::path& folder) {
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return 0;
  int removed = 0;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const auto writer = writer_of(name);
    struct stat info {};
    if (!writer || ::fstatat(opened.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) continue;
    const std::time_t age = std::time(nullptr) - info.st_mtime;
    const bool stale = age > kDay || (age > kHour && !runs_here(*writer));
    if (stale && ::unlinkat(opened.get(), name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

}  // namespace lorikeet::data
