// A library to preload into a program, or a source of a test: counts the calls that change files below some
// folders, and at the n-th kills the process or fails as a full disk would. Tests and scripts/faults drive it
// by the environment:
//   LORIKEET_FAULT_ROOTS  the folders, absolute, separated by colons
//   LORIKEET_FAULT_LOG    a file outside of them that gets a line for each call: "<n> <function> <path>"
//   LORIKEET_FAULT_AT     n, from 1; absent: nothing happens
//   LORIKEET_FAULT_HOW    "kill": SIGKILL instead of the call
//                         "stop": SIGSTOP before the call
//                         "slow": it and all later ones come 20 ms later
//                         "full": it and all later ones that need room on the disk fail with ENOSPC
//                         "refused": it alone fails with EIO
//   LORIKEET_FAULT_NO_EXCHANGE  set: no two paths can be exchanged, as on NFS
//   LORIKEET_FAULT_FREE_BYTES  what every file system reports as free
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>  // NOLINT(modernize-deprecated-headers): RENAME_EXCHANGE is Linux's
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

enum class Need { kRoom, kNone };  // whether a full disk lets the call fail

std::atomic<long> g_count{0};

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int fd) {
  char target[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = ::readlink(link.c_str(), target, sizeof target);
  return size < 0 ? "" : std::string(target, static_cast<std::size_t>(size));
}

std::string path_of(int folder, const char* name) {
  if (name[0] == '/') return name;
  if (folder != AT_FDCWD) return path_of(folder) + "/" + name;
  char here[PATH_MAX];
  return ::getcwd(here, sizeof here) == nullptr ? name : std::string(here) + "/" + name;
}

bool below_roots(std::string_view path) {
  const char* roots = std::getenv("LORIKEET_FAULT_ROOTS");
  std::string_view rest = roots == nullptr ? "" : roots;
  while (!rest.empty()) {
    const std::string_view root = rest.substr(0, rest.find(':'));
    rest.remove_prefix(root.size() < rest.size() ? root.size() + 1 : root.size());
    if (!root.empty() && path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/'))
      return true;
  }
  return false;
}

void log_call(long number, const char* function, const std::string& path) {
  const char* file = std::getenv("LORIKEET_FAULT_LOG");
  if (file == nullptr) return;
  const std::string line = std::to_string(number) + " " + function + " " + path + "\n";
  // By system calls: the library's own functions would count themselves.
  const long fd = ::syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::syscall(SYS_write, fd, line.data(), line.size());
  ::syscall(SYS_close, fd);
}

// True when the call is to fail, with errno as it is then.
bool fault(const char* function, const std::string& path, Need need) {
  if (!below_roots(path)) return false;
  const long number = ++g_count;
  log_call(number, function, path);
  const char* at = std::getenv("LORIKEET_FAULT_AT");
  if (at == nullptr || number < std::atol(at)) return false;
  const char* how = std::getenv("LORIKEET_FAULT_HOW");
  if (how != nullptr && std::strcmp(how, "kill") == 0) ::kill(::getpid(), SIGKILL);
  if (how != nullptr && std::strcmp(how, "stop") == 0) {
    if (number == std::atol(at)) ::kill(::getpid(), SIGSTOP);
    return false;
  }
  if (how != nullptr && std::strcmp(how, "slow") == 0) {
    ::usleep(20'000);
    return false;
  }
  if (how != nullptr && std::strcmp(how, "refused") == 0) {
    if (number != std::atol(at)) return false;
    errno = EIO;
    return true;
  }
  if (need == Need::kNone) return false;
  errno = ENOSPC;
  return true;
}

bool writes(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0; }
Need need_of(int flags) { return (flags & (O_CREAT | O_TRUNC)) != 0 ? Need::kRoom : Need::kNone; }

}  // namespace

extern "C" {

#define OPEN_FUNCTION(name)                                                                \
  int name(const char* path, int flags, ...) {                                             \
    va_list more;                                                                          \
    va_start(more, flags);                                                                 \
    const auto mode = static_cast<mode_t>((flags & O_CREAT) != 0 ? va_arg(more, int) : 0); \
    va_end(more);                                                                          \
    if (writes(flags) && fault(#name, path_of(AT_FDCWD, path), need_of(flags))) return -1; \
    return real<int(const char*, int, ...)>(#name)(path, flags, mode);                     \
  }
OPEN_FUNCTION(open)
OPEN_FUNCTION(open64)

#define OPENAT_FUNCTION(name)                                                              \
  int name(int folder, const char* path, int flags, ...) {                                 \
    va_list more;                                                                          \
    va_start(more, flags);                                                                 \
    const auto mode = static_cast<mode_t>((flags & O_CREAT) != 0 ? va_arg(more, int) : 0); \
    va_end(more);                                                                          \
    if (writes(flags) && fault(#name, path_of(folder, path), need_of(flags))) return -1;   \
    return real<int(int, const char*, int, ...)>(#name)(folder, path, flags, mode);        \
  }
OPENAT_FUNCTION(openat)
OPENAT_FUNCTION(openat64)

#define FOPEN_FUNCTION(name)                                                                  \
  FILE* name(const char* path, const char* mode) {                                            \
    if (mode[0] != 'r' && fault(#name, path_of(AT_FDCWD, path), Need::kRoom)) return nullptr; \
    return real<FILE*(const char*, const char*)>(#name)(path, mode);                          \
  }
FOPEN_FUNCTION(fopen)
FOPEN_FUNCTION(fopen64)

#define MKOSTEMP_FUNCTION(name)                                        \
  int name(char* path, int flags) {                                    \
    if (fault(#name, path_of(AT_FDCWD, path), Need::kRoom)) return -1; \
    return real<int(char*, int)>(#name)(path, flags);                  \
  }
MKOSTEMP_FUNCTION(mkostemp)
MKOSTEMP_FUNCTION(mkostemp64)

ssize_t write(int fd, const void* bytes, size_t size) {
  if (fault("write", path_of(fd), Need::kRoom)) return -1;
  return real<ssize_t(int, const void*, size_t)>("write")(fd, bytes, size);
}

int fsync(int fd) {
  if (fault("fsync", path_of(fd), Need::kRoom)) return -1;
  return real<int(int)>("fsync")(fd);
}

int ftruncate(int fd, off_t size) noexcept {
  if (fault("ftruncate", path_of(fd), Need::kNone)) return -1;
  return real<int(int, off_t)>("ftruncate")(fd, size);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fault("mkdir", path_of(AT_FDCWD, path), Need::kRoom)) return -1;
  return real<int(const char*, mode_t)>("mkdir")(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  if (fault("rename", path_of(AT_FDCWD, to), Need::kNone)) return -1;
  return real<int(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  const std::string path = path_of(to_folder, to);
  if (fault("renameat2", path, Need::kNone)) return -1;
  if ((flags & RENAME_EXCHANGE) != 0 && std::getenv("LORIKEET_FAULT_NO_EXCHANGE") && below_roots(path)) {
    errno = EINVAL;
    return -1;
  }
  return real<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from, to_folder,
                                                                              to, flags);
}

int unlink(const char* path) noexcept {
  if (fault("unlink", path_of(AT_FDCWD, path), Need::kNone)) return -1;
  return real<int(const char*)>("unlink")(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if (fault("unlinkat", path_of(folder, path), Need::kNone)) return -1;
  return real<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}

int rmdir(const char* path) noexcept {
  if (fault("rmdir", path_of(AT_FDCWD, path), Need::kNone)) return -1;
  return real<int(const char*)>("rmdir")(path);
}

int remove(const char* path) noexcept {
  if (fault("remove", path_of(AT_FDCWD, path), Need::kNone)) return -1;
  return real<int(const char*)>("remove")(path);
}

int chmod(const char* path, mode_t mode) noexcept {
  if (fault("chmod", path_of(AT_FDCWD, path), Need::kNone)) return -1;
  return real<int(const char*, mode_t)>("chmod")(path, mode);
}

#define STATVFS_FUNCTION(name)                                                                    \
  int name(const char* path, struct name* info) noexcept {                                        \
    const int result = real<int(const char*, struct name*)>(#name)(path, info);                   \
    if (const char* bytes = std::getenv("LORIKEET_FAULT_FREE_BYTES"); bytes && result == 0)       \
      info->f_bavail = static_cast<decltype(info->f_bavail)>(std::atoll(bytes)) / info->f_frsize; \
    return result;                                                                                \
  }
STATVFS_FUNCTION(statvfs)
STATVFS_FUNCTION(statvfs64)

}  // extern "C"
