#include "base/anonymous_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "base/temporary.h"
#include "base/write_all.h"

namespace lorikeet {
namespace {

[[noreturn]] void fail(const std::filesystem::path& folder, const char* action, int error) {
  throw Error("[file] can't " + std::string(action) + " a temporary file in '" +
                  escape_control(folder.string()) + "': " + std::strerror(error),
              ErrorKind::kEnvironment);
}

}  // namespace

AnonymousFile::AnonymousFile(std::filesystem::path folder) : folder_(std::move(folder)) {
  fd_ = UniqueFd(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd_) return;
  // Not all file systems have O_TMPFILE.
  const std::filesystem::path named = temporary_beside(folder_ / "tokens");
  fd_ = UniqueFd(::open(named.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd_) fail(folder_, "make", errno);
  if (::unlink(named.c_str()) != 0) fail(folder_, "unlink", errno);
}

void AnonymousFile::write(std::string_view bytes) {
  if (const int error = write_all(fd_.get(), bytes)) fail(folder_, "write", error);
}

std::filesystem::path AnonymousFile::path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

}  // namespace lorikeet
