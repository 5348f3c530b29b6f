#include "hub/cache_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"

namespace lorikeet::hub {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

// Group-writable, as huggingface_hub makes them: users may share a cache.
constexpr mode_t kMode = 0664;

bool was_unlinked(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_nlink == 0;
}

}  // namespace

CacheLock::CacheLock(const std::filesystem::path& path, const std::string& what,
                     const std::atomic<bool>& stop) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  bool reported = false;
  while (!stop) {
    fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode));
    if (!fd_)
      throw Error("[hub] can't make '" + escape_control(path.string()) + "': " + std::strerror(errno) +
                      "; HF_HUB_CACHE chooses another cache",
                  ErrorKind::kEnvironment);
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
      // Its holder may have removed the file between our open and our lock.
      if (!was_unlinked(fd_.get())) return;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // no locks here
    if (!reported) log_info("another process downloads " + what + ": waiting for it");
    reported = true;
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace lorikeet::hub
