#include "hub/fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "hub/cache_lock.h"
#include "hub/server_error.h"

namespace lorikeet::hub {
namespace {

constexpr std::size_t kMostListBytes = std::size_t{64} << 20;
constexpr auto kPoll = std::chrono::milliseconds(50);

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "bytes 100-199/200" begins at 100; a total that isn't `size` is no answer for this file.
std::optional<std::uint64_t> range_start(const std::string& content_range, std::uint64_t size) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return std::nullopt;
  const std::string_view range = std::string_view(content_range).substr(kUnit.size());
  const std::size_t dash = range.find('-'), slash = range.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos) return std::nullopt;
  const std::string_view total = range.substr(slash + 1);
  if (total != "*" && parse_number(total) != size) return std::nullopt;
  return parse_number(range.substr(0, dash));
}

class TextSink : public HttpSink {
 public:
  explicit TextSink(const std::atomic<bool>& stop) : stop_(stop) {}

  bool begin(const HttpAnswer&) override {
    text.clear();
    return true;
  }
  bool write(std::string_view bytes) override {
    text += bytes;
    return text.size() <= kMostListBytes;
  }
  bool should_stop() override { return stop_; }

  std::string text;

 private:
  const std::atomic<bool>& stop_;
};

// Writes a file's bytes at their offsets.
class FileSink : public HttpSink {
 public:
  FileSink(const std::filesystem::path& path, const RemoteFile& file, Progress& progress,
           const std::atomic<bool>& stop)
      : path_(path), file_(file), progress_(progress), stop_(stop) {
    fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!fd_) fail_by_errno("can't make");
    const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
    position = end < 0 ? 0 : static_cast<std::uint64_t>(end);
    if (position > file.size) restart();
    progress_.add(static_cast<std::int64_t>(position), /*kept=*/true);
  }

  bool begin(const HttpAnswer& answer) override {
    problem.clear();
    if (answer.status == 200) {
      seek(0);
      const std::string length = answer.header("content-length");
      if (length.empty() || parse_number(length) == file_.size) return true;
      problem = "the server sends " + escape_control(length) + " bytes, the repository's list says " +
                std::to_string(file_.size);
      return false;
    }
    if (range_start(answer.header("content-range"), file_.size) == position) return true;
    problem = "asked for bytes from " + std::to_string(position) + " on, the server sends '" +
              escape_control(answer.header("content-range")) + "'";
    restart();
    return false;
  }

  bool write(std::string_view bytes) override {
    if (bytes.size() > file_.size - position) {
      problem =
          "the server sends more than the " + std::to_string(file_.size) + " bytes of the repository's list";
      restart();
      return false;
    }
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(position));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        write_error = n < 0 ? errno : ENOSPC;
        return false;
      }
      position += static_cast<std::uint64_t>(n);
      progress_.add(n);
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  bool should_stop() override { return stop_; }

  // A new file: one that another process may be writing keeps its bytes.
  void restart() {
    seek(0);
    ::unlink(path_.c_str());
    fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!fd_) fail_by_errno("can't make");
  }

  void sync() {
    if (::fsync(fd_.get()) != 0) fail_by_errno("can't write");
  }

  [[noreturn]] void fail_by_errno(const std::string& what) const {
    throw Error("[hub] " + what + " '" + escape_control(path_.string()) + "': " + std::strerror(errno) +
                    "; HF_HUB_CACHE chooses another cache",
                ErrorKind::kEnvironment);
  }

  std::uint64_t position = 0;  // bytes before it are there
  std::string problem;         // what is wrong with an answer
  int write_error = 0;

 private:
  void seek(std::uint64_t to) {
    progress_.add(static_cast<std::int64_t>(to) - static_cast<std::int64_t>(position), /*kept=*/true);
    position = to;
  }

  const std::filesystem::path& path_;
  const RemoteFile& file_;
  Progress& progress_;
  const std::atomic<bool>& stop_;
  UniqueFd fd_;
};

}  // namespace

std::string list_url(const Environment& environment, const Repository& repository) {
  return environment.endpoint +
         (repository.kind == RepositoryKind::kModel ? "/api/models/" : "/api/datasets/") + repository.name +
         "/revision/" + url_encode(repository.revision, false) + "?blobs=true";
}

std::string file_url(const Environment& environment, const Repository& repository, const std::string& commit,
                     const std::string& path) {
  return environment.endpoint + (repository.kind == RepositoryKind::kModel ? "/" : "/datasets/") +
         repository.name + "/resolve/" + commit + "/" + url_encode(path, true);
}

Fetcher::Fetcher(const Environment& environment, const Repository& repository, const std::atomic<bool>& stop,
                 const RetryPolicy& policy)
    : environment_(environment),
      repository_(repository),
      stop_(stop),
      policy_(policy),
      client_(environment) {}

void Fetcher::wait(const HttpResult& result, int attempt, const std::string& what) {
  if (stop_) throw Stopped{};
  const std::string reason =
      result.failure.empty() ? "the server answers " + std::to_string(result.answer.status) : result.failure;
  if (attempt >= policy_.most_attempts) {
    if (result.failure.empty()) throw server_error(result.answer, repository_, what, environment_);
    throw Error("[hub] " + repository_.describe() + ": can't get " + what + " from " + environment_.endpoint +
                    ": " + reason + " (after " + std::to_string(attempt) +
                    " attempts); run the same command again, it goes on where it stopped",
                ErrorKind::kEnvironment);
  }
  double seconds =
      std::chrono::duration<double>(policy_.first_wait).count() * static_cast<double>(1 << (attempt - 1));
  if (const auto asked = result.failure.empty() ? seconds_to_wait(result.answer) : std::nullopt) {
    if (*asked > static_cast<double>(policy_.longest_wait.count()))
      throw Error("[hub] " + repository_.describe() + ": the server answers " +
                      std::to_string(result.answer.status) + " for " + what + " and asks to wait " +
                      format_seconds(*asked) + "; run the same command then, it goes on where it stopped",
                  ErrorKind::kEnvironment);
    seconds = *asked;
  }
  log_info(what + ": " + reason + "; again in " + format_seconds(seconds));
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    if (stop_) throw Stopped{};
    std::this_thread::sleep_for(kPoll);
  }
}

std::string Fetcher::text(const std::string& url, const std::string& what) {
  for (int attempt = 1;; ++attempt) {
    TextSink sink(stop_);
    HttpResult result = client_.get(url, 0, sink);
    if (result.stopped && stop_) throw Stopped{};
    if (result.stopped)
      throw Error("[hub] " + repository_.describe() + ": " + what + " is larger than " +
                  format_bytes(kMostListBytes));
    if (result.failure.empty()) {
      if (result.answer.status == 200) return std::move(sink.text);
      if (!is_temporary(result.answer.status))
        throw server_error(result.answer, repository_, what, environment_);
    }
    wait(result, attempt, what);
  }
}

void Fetcher::complete(const std::filesystem::path& partial, const std::string& url, const RemoteFile& file,
                       Progress& progress) {
  FileSink sink(partial, file, progress, stop_);
  int attempt = 1;
  while (sink.position < file.size) {
    const std::uint64_t before = sink.position;
    HttpResult result = client_.get(url, before, sink);
    if (sink.write_error != 0) {
      errno = sink.write_error;
      sink.fail_by_errno("can't write");
    }
    if (stop_) throw Stopped{};
    if (sink.position == file.size && sink.problem.empty()) break;
    if (!sink.problem.empty()) {
      result.failure = sink.problem;
      sink.problem.clear();
    } else if (result.failure.empty() && result.answer.status == 416) {
      sink.restart();
    } else if (result.failure.empty() && (result.answer.status == 200 || result.answer.status == 206)) {
      result.failure = "the connection ended at byte " + std::to_string(sink.position) + " of " +
                       std::to_string(file.size);
    } else if (result.failure.empty() && !is_temporary(result.answer.status)) {
      throw server_error(result.answer, repository_, file.path, environment_);
    }
    if (sink.position > before) attempt = 1;  // it goes forward
    wait(result, attempt++, file.path);
  }
  sink.sync();
}

void Fetcher::blob(const RepositoryCache& cache, const std::string& commit, const RemoteFile& file,
                   Progress& progress) {
  if (cache.has_blob(file)) {
    progress.add(static_cast<std::int64_t>(file.size), /*kept=*/true);
    return;
  }
  const std::filesystem::path blob = cache.blob(file.digest), partial = cache.incomplete(file.digest);
  std::error_code error;
  std::filesystem::create_directories(blob.parent_path(), error);
  const CacheLock lock(cache.lock(file.digest), file.path, stop_);
  if (stop_) throw Stopped{};
  if (cache.has_blob(file)) {
    progress.add(static_cast<std::int64_t>(file.size), /*kept=*/true);
    return;
  }
  const std::string url = file_url(environment_, repository_, commit, file.path);
  for (bool again = false;; again = true) {
    complete(partial, url, file, progress);
    const Digest found = file_digest(partial, file.digest.kind);
    if (found == file.digest && std::filesystem::file_size(partial, error) == file.size) break;
    progress.add(-static_cast<std::int64_t>(file.size), /*kept=*/true);
    std::filesystem::remove(partial, error);
    if (again)
      throw Error("[hub] " + repository_.describe() + ": " + file.path + " has another checksum than the " +
                      "repository's list: expected " + file.digest.hex + ", got " + found.hex +
                      ", twice; nothing of it was kept. Something between here and " + environment_.endpoint +
                      " changes it (a proxy, a mirror), or the disk loses bytes",
                  ErrorKind::kEnvironment);
    log_warning(file.path + ": another checksum than the repository's list; fetching it from its beginning");
  }
  std::filesystem::rename(partial, blob, error);
  if (error)
    throw Error("[hub] can't rename '" + escape_control(partial.string()) + "': " + error.message(),
                ErrorKind::kEnvironment);
}

}  // namespace lorikeet::hub
