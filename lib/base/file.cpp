#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lorikeet {
namespace {

[[noreturn]] void throw_errno(const std::filesystem::path& path, const char* action, ErrorKind kind) {
  throw Error("[file] can't " + std::string(action) + " '" + path.string() + "': " + std::strerror(errno),
              kind);
}

UniqueFd open_regular(const std::filesystem::path& path, std::uint64_t* size) {
  // O_NONBLOCK: a FIFO named as a file must not hang the process; it fails the check below.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw_errno(path, "open", ErrorKind::kUsage);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw_errno(path, "stat", ErrorKind::kUsage);
  if (!S_ISREG(info.st_mode))
    throw Error("[file] expected a regular file, '" + path.string() + "' is not one");
  *size = static_cast<std::uint64_t>(info.st_size);
  return fd;
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  std::uint64_t size = 0;
  const UniqueFd fd = open_regular(path, &size);
  size_ = size;
  if (size_ == 0) return;  // mmap refuses length 0; an empty view is right
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) throw_errno(path, "map", ErrorKind::kEnvironment);
  data_ = static_cast<const char*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

void MappedFile::drop_pages(std::size_t offset, std::size_t length) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + length) / page * page;
  if (data_ == nullptr || end <= begin || end > size_) return;
  ::madvise(const_cast<char*>(data_) + begin, end - begin, MADV_DONTNEED);
}

std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  std::uint64_t size = 0;
  const UniqueFd fd = open_regular(path, &size);
  if (size > limit_bytes) {
    throw Error("[file] '" + path.string() + "' has " + std::to_string(size) + " bytes, at most " +
                std::to_string(limit_bytes) + " are accepted here");
  }
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, "read", ErrorKind::kUsage);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

void sync_path(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw_errno(path, "open", ErrorKind::kEnvironment);
  if (::fsync(fd.get()) != 0) throw_errno(path, "sync", ErrorKind::kEnvironment);
}

}  // namespace lorikeet
