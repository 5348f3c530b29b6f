#include "data/file_notes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/strings.h"
#include "data/cache_files.h"

namespace lorikeet::data {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;
// The clocks of file systems tick every 10 ms or faster, where they aren't those of whole seconds.
constexpr std::int64_t kTick = 20'000'000;
constexpr std::int64_t kLongestWait = 5 * kTick;
constexpr std::uint64_t kLargestNote = 16384;

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * kNanoseconds + time.tv_nsec; }

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Waits until the clock has ticked since the file's last change, where that was just now.
bool is_settled(const FileFacts& facts) {
  if (facts.ctime_ns % kNanoseconds == 0) return false;  // whole seconds: a change would not show
  const std::int64_t wait = std::max(facts.ctime_ns, facts.mtime_ns) + kTick - now();
  if (wait > kLongestWait) return false;  // a time to come: another machine's clock
  if (wait > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
  return true;
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* action) {
  throw Error("[file] can't " + std::string(action) + " '" + escape_control(file.string()) +
              "': " + std::strerror(errno));
}

Json note_json(const std::filesystem::path& file, const FileFacts& facts, const std::string& value) {
  Json note;
  note.set("version", 1)
      .set("file", std::filesystem::absolute(file).string())
      .set("size", facts.size)
      .set("inode", std::to_string(facts.inode))
      .set("mtime_ns", facts.mtime_ns)
      .set("ctime_ns", facts.ctime_ns)
      .set("value", value);
  return note;
}

FileFacts stat_of(const std::filesystem::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) fail(file, "open");
  return {.size = static_cast<std::uint64_t>(info.st_size),
          .inode = info.st_ino,
          .mtime_ns = nanoseconds(info.st_mtim),
          .ctime_ns = nanoseconds(info.st_ctim)};
}

}  // namespace

FileFacts facts_of(const std::filesystem::path& file) {
  const FileFacts first = stat_of(file);
  const bool settled = is_settled(first);
  FileFacts facts = stat_of(file);  // it may have changed in the meantime
  facts.settled = settled && facts == first;
  return facts;
}

std::string file_sha256(const std::filesystem::path& file) {
  // O_NONBLOCK: a FIFO must not hang the process.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) fail(file, "open");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail(file, "stat");
  if (!S_ISREG(info.st_mode))
    throw Error("[file] expected a regular file, '" + escape_control(file.string()) + "' is not one");
  Sha256 hash;
  std::string piece(std::size_t{1} << 20, '\0');
  while (true) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(file, "read");
    if (n == 0) return hash.hex();
    hash.update(std::string_view(piece).substr(0, static_cast<std::size_t>(n)));
  }
}

std::filesystem::path FileNotes::note_of(const std::filesystem::path& file) const {
  return folder_ / (sha256_hex(std::filesystem::absolute(file).string()) + ".note");
}

std::optional<std::string> FileNotes::recall(const std::filesystem::path& file) const {
  const std::filesystem::path path = note_of(file);
  if (!is_own_file(path)) return std::nullopt;
  try {
    const Json note = Json::parse(read_file(path, kLargestNote), "note");
    std::string value = JsonView(note, "note").at("value").as_string();
    if (note.dump() != note_json(file, stat_of(file), value).dump()) return std::nullopt;
    return value;
  } catch (const Error&) {
    return std::nullopt;  // damaged, or of another version: the file is read again
  }
}

void FileNotes::keep(const std::filesystem::path& file, const FileFacts& before,
                     const std::string& value) const {
  if (!wants(before.size) || !before.settled) return;
  try {
    if (!(stat_of(file) == before)) return;
    write_file_atomic(note_of(file), note_json(file, before, value).dump(), 0600);
  } catch (const Error&) {
    return;  // costs the next start time
  }
}

}  // namespace lorikeet::data
