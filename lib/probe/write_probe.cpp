#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/write_all.h"
#include "probe/probes.h"
#include "probe/stopwatch.h"

namespace lorikeet::probe {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, int error = errno) {
  throw Error("[probe] can't write into '" + folder.string() + "': " + std::strerror(error),
              ErrorKind::kEnvironment);
}

// Bytes that no file system shortens.
std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint64_t state = 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

}  // namespace

ProbeAnswer probe_write(const ProbeRequest& request) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  std::error_code ignored;
  fs::path folder = fs::absolute(request.folder);
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  std::string name = (folder / ".lorikeet-probe-XXXXXX").string();
  const UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) fail(folder);
  ::unlink(name.c_str());
  const std::string bytes = noise(kBytes);
  const Stopwatch watch;
  if (const int error = write_all(file.get(), bytes)) fail(folder, error);
  if (::fsync(file.get()) != 0) fail(folder);
  return {.figures = {{"mb_per_second", static_cast<double>(kBytes) / 1e6 / watch.seconds()}}};
}

}  // namespace lorikeet::probe
