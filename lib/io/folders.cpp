#include "io/folders.h"

#include <fcntl.h>
#include <stdio.h>  // NOLINT(modernize-deprecated-headers): renameat is POSIX's
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/temporary.h"
#include "io/disk.h"
#include "io/remove_tree.h"
#include "io/step_folder.h"

namespace lorikeet::io {
namespace {

namespace fs = std::filesystem;

// Behind the temporary name of a new folder: where the old one is while the new one takes its place.
constexpr std::string_view kAside = "-old";

constexpr std::string_view kMarkerText = "{\"written_by\": \"lorikeet\", \"format\": 1}\n";

[[noreturn]] void fail(const fs::path& path, const char* action) {
  const char* reason = std::strerror(errno);
  throw Error("[file] can't " + std::string(action) + " '" + escape_control(path.string()) + "': " + reason,
              ErrorKind::kEnvironment);
}

std::optional<struct stat> stat_of(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return std::nullopt;
  return info;
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// The marker goes last: what a killed deletion leaves is still known as ours.
void discard(const fs::path& folder) {
  remove_tree(parent_of(folder), folder.filename().string(), kMarkerFile);
}

// Renames it first: a deletion cut short leaves half of a folder under a temporary name alone.
void discard_as(const fs::path& folder, const fs::path& temporary) {
  if (::rename(folder.c_str(), temporary.c_str()) != 0) fail(folder, "rename");
  discard(temporary);
}

bool is_real_folder(const fs::path& path) {
  const auto info = stat_of(path);
  return info && S_ISDIR(info->st_mode);
}

// A descriptor of the folder that holds its lock; none where another process has it, or the folder is gone.
UniqueFd lock_folder(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return fd;
}

// A writer was killed before its marker was whole: nothing of value is in the folder yet.
bool holds_no_more_than_a_begun_marker(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || entry.is_symlink()) return false;
    if (name != kMarkerFile && temporary_target(name) != kMarkerFile) return false;
  }
  return !error;
}

// An entry of a folder with a name that writers give: temporary, or set aside.
struct Leftover {
  fs::path path;
  fs::path target;
  bool set_aside = false;
};

// Those in `parent`, for which `wanted` says yes to the target's name.
template <typename Wanted>
std::vector<Leftover> leftovers_in(const fs::path& parent, const Wanted& wanted) {
  std::vector<Leftover> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    std::string_view temporary = name;
    const bool set_aside = temporary.ends_with(kAside);
    if (set_aside) temporary.remove_suffix(kAside.size());
    const auto target = temporary_target(temporary);
    if (target && wanted(*target)) found.push_back({entry.path(), parent / *target, set_aside});
  }
  return found;
}

// Removes a folder of ours whose writer no longer lives, or gives it its name back; true when it removed it.
bool recover(const Leftover& left) {
  if (!is_real_folder(left.path)) return false;
  const UniqueFd lock = lock_folder(left.path);
  if (!lock) return false;
  if (!has_own_marker(left.path) && (left.set_aside || !holds_no_more_than_a_begun_marker(left.path)))
    return false;
  if (!left.set_aside) {
    discard(left.path);
  } else if (stat_of(left.target)) {
    discard_as(left.path, temporary_beside(left.target));
  } else {
    if (::rename(left.path.c_str(), left.target.c_str()) != 0) fail(left.path, "put back");
    return false;
  }
  return true;
}

// Files first, then the folders that name them.
void sync_tree(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) {
      sync_tree(entry.path());
    } else if (entry.is_regular_file()) {
      sync_path(entry.path());
    }
  }
  sync_path(folder);
}

// Puts `from` in the place of the folder `to`. Returns where the old one is then.
fs::path replace(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return from;
  if (errno != EINVAL && errno != ENOSYS) fail(to, "replace");
  // A file system without exchange: two renames. Between them `to` doesn't exist, so the old folder has a
  // name that `recover` knows, and a lock, since this writer lives.
  fs::path aside = from.string() + std::string(kAside);
  const UniqueFd lock = lock_folder(to);
  if (::rename(to.c_str(), aside.c_str()) != 0) fail(to, "move");
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int reason = errno;
    ::rename(aside.c_str(), to.c_str());  // where that fails too, `recover` does it
    errno = reason;
    fail(to, "rename to");
  }
  return aside;
}

}  // namespace

bool has_own_marker(const fs::path& folder) {
  const auto info = stat_of(folder);
  const auto marker = stat_of(folder / kMarkerFile);
  if (!info || !S_ISDIR(info->st_mode) || !marker || !S_ISREG(marker->st_mode)) return false;
  return static_cast<std::size_t>(marker->st_size) == kMarkerText.size() &&
         read_file(folder / kMarkerFile, kMarkerText.size()) == kMarkerText;
}

AtomicFolder::AtomicFolder(fs::path target) : target_(std::move(target)) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "a/b/" is "a/b"
  if (stat_of(target_) && !has_own_marker(target_)) {
    throw Error("[file] '" + escape_control(target_.string()) +
                "' is there and was not written by lorikeet; it is left alone: choose another folder");
  }
  std::error_code error;
  fs::create_directories(parent_of(target_), error);
  const auto same_target = [&](const std::string& name) { return name == target_.filename(); };
  for (const Leftover& left : leftovers_in(parent_of(target_), same_target)) recover(left);
  temporary_ = temporary_beside(target_);
  if (::mkdir(temporary_.c_str(), 0755) != 0) fail(temporary_, "make the folder");
  try {
    lock_ = lock_folder(temporary_);
    if (!lock_) fail(temporary_, "lock the folder");
    write_file_atomic(temporary_ / kMarkerFile, kMarkerText);
  } catch (...) {
    ::unlink((temporary_ / kMarkerFile).c_str());  // written, where bringing it to the disk has failed
    ::rmdir(temporary_.c_str());
    throw;
  }
}

AtomicFolder::~AtomicFolder() {
  if (committed_) return;
  try {
    discard(temporary_);
  } catch (const Error&) {
    // Already unwinding, most likely from the same fault; the next run's recover_folders gets it.
  }
}

void AtomicFolder::commit() {
  sync_tree(temporary_);
  const fs::path parent = parent_of(target_);
  if (!stat_of(target_)) {
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(target_, "rename to");
    committed_ = true;
    return sync_path(parent);
  }
  if (!has_own_marker(target_)) {
    throw Error("[file] '" + escape_control(target_.string()) +
                "' appeared meanwhile and is not ours; it is left alone");
  }
  const fs::path old = replace(temporary_, target_);
  committed_ = true;
  sync_path(parent);
  // The new folder is there: what is in use of the old one goes at a later start.
  try {
    discard_as(old, temporary_);  // which an exchange has done already
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

fs::path take_place_of_empty(const fs::path& folder) {
  if (!fs::exists(folder)) return folder;
  const fs::path empty = fs::canonical(folder);
  std::error_code error;
  fs::remove(empty, error);
  if (error)
    throw Error("[file] '" + escape_control(empty.string()) + "' can't be replaced: " + error.message() +
                    "; choose a new folder",
                ErrorKind::kEnvironment);
  return empty;
}

void remove_own_folder(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!step_of_folder(name) || !has_own_marker(folder)) {
    throw Error("[file] '" + escape_control(folder.string()) +
                    "' is not removed: expected a folder step_<n> that holds our " + kMarkerFile,
                ErrorKind::kRunFailed);
  }
  discard_as(folder, temporary_beside(folder));
}

std::vector<fs::path> recover_folders(const fs::path& parent) {
  std::vector<fs::path> removed;
  for (const Leftover& left : leftovers_in(parent, [](const std::string&) { return true; })) {
    if (recover(left)) removed.push_back(left.path);
  }
  return removed;
}

bool is_stale_file_name(const std::string& name, const std::function<bool(const std::string&)>& own) {
  // libtorch's profiler writes a trace under the name that it is given with ".tmp" behind it.
  constexpr std::string_view kProfilers = ".tmp";
  std::string_view stem = name;
  if (stem.ends_with(kProfilers)) stem.remove_suffix(kProfilers.size());
  const auto target = temporary_target(stem);
  return is_probe_name(name) || (target && own(*target));
}

std::vector<fs::path> remove_stale_files(const fs::path& parent,
                                         const std::function<bool(const std::string&)>& own) {
  std::vector<fs::path> removed;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const auto info = stat_of(entry.path());
    if (info && S_ISREG(info->st_mode) && is_stale_file_name(entry.path().filename().string(), own))
      removed.push_back(entry.path());
  }
  for (const fs::path& path : removed) {
    if (::unlink(path.c_str()) != 0) fail(path, "remove");
  }
  return removed;
}

FolderLock::FolderLock(const fs::path& folder) : path_(folder / kLockFile) {
  // The run that held the lock may have removed the file after it was opened here, and a third one have made
  // and locked another: only a lock on the file that is in place counts.
  do {
    fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd_) fail(path_, "create");
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail(path_, "lock");
      throw Error("[output] another process is writing into '" + escape_control(folder.string()) +
                  "'; wait for it or choose another checkpoint.output_dir");
    }
  } while (!is_in_place());
}

bool FolderLock::is_in_place() const {
  struct stat held {};
  const auto there = stat_of(path_);
  return ::fstat(fd_.get(), &held) == 0 && there && there->st_ino == held.st_ino &&
         there->st_dev == held.st_dev;
}

void FolderLock::remove() {
  if (is_in_place()) ::unlink(path_.c_str());
}

}  // namespace lorikeet::io
