#include "base/atomic_file.h"

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

[[noreturn]] void fail(const std::filesystem::path& path, const char* action, int error = errno) {
  throw Error("[file] can't " + std::string(action) + " '" + escape_control(path.string()) +
                  "': " + std::strerror(error),
              ErrorKind::kEnvironment);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, unsigned mode)
    : path_(std::move(path)), temporary_(temporary_beside(path_)) {
  // O_EXCL: neither a link that was planted under the temporary name nor another's file gets the bytes.
  fd_ = UniqueFd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd_) fail(temporary_, "create");
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  if (const int error = write_all(fd_.get(), bytes)) fail(path_, "write", error);
}

void AtomicFile::start_writeback() {
  // Where the file system can't, fsync does it all.
  (void)::sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) fail(path_, "sync");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "rename to");
  committed_ = true;
  sync_path(path_.has_parent_path() ? path_.parent_path() : ".");
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
  AtomicFile file(path, mode);
  file.write(bytes);
  file.commit();
}

}  // namespace lorikeet
