#include "data/cache_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/file.h"
#include "base/temporary.h"

namespace lorikeet::data {
namespace {

constexpr std::array<std::string_view, 2> kEndings{".tokens", ".note"};
constexpr std::time_t kHour = 3600;

bool is_temporary_name(std::string_view name) {
  static constexpr std::size_t kKeyDigits = 64;
  const auto target = temporary_target(name);
  if (!target || target->size() < kKeyDigits || target->find_first_not_of("0123456789abcdef") != kKeyDigits)
    return false;
  const std::string ending = target->substr(kKeyDigits);
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

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
    struct stat info {};
    if (!is_temporary_name(name) || ::fstatat(opened.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) continue;
    const bool stale = std::time(nullptr) - info.st_mtime > kHour;
    if (stale && ::unlinkat(opened.get(), name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

}  // namespace lorikeet::data
