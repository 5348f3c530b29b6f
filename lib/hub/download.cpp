#include "hub/download.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strings.h"
#include "hub/cache.h"
#include "hub/selection.h"
#include "io/disk.h"

namespace lorikeet::hub {
namespace {

// The marker by which backup programs pass over caches, https://bford.info/cachedir/.
constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag created by the tools of Hugging Face's Hub.\n";

void make_cache(const std::filesystem::path& cache) {
  io::make_writable_folder(cache);
  const std::filesystem::path tag = cache / "CACHEDIR.TAG";
  std::error_code ignored;
  if (!std::filesystem::exists(tag, ignored)) write_file_atomic(tag, kCacheTag);
}

// Bytes that are still to come. Two files with the same content are one blob.
std::uint64_t missing_bytes(const RepositoryCache& cache, const std::vector<RemoteFile>& files) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const RemoteFile& file : files) {
    if (cache.has_blob(file)) continue;
    const std::uint64_t kept = std::filesystem::file_size(cache.incomplete(file.digest), error);
    bytes += file.size - (error ? 0 : std::min(kept, file.size));
  }
  return bytes;
}

// Files that several threads fetch, the largest first; the first error ends all.
class Work {
 public:
  Work(const RepositoryCache& cache, const std::string& commit, std::vector<RemoteFile> files,
       Progress& progress)
      : cache_(cache), commit_(commit), files_(std::move(files)), progress_(progress) {
    std::sort(files_.begin(), files_.end(),
              [](const RemoteFile& a, const RemoteFile& b) { return a.size > b.size; });
  }

  void run(const Repository& repository, const Environment& environment, const DownloadOptions& options) {
    std::vector<std::thread> threads;
    const auto count =
        std::min<std::size_t>(static_cast<std::size_t>(std::max(options.parallel, 1)), files_.size());
    threads.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        try {
          Fetcher fetcher(environment, repository, stop_, options.retry);
          fetch(fetcher);
        } catch (const Stopped&) {  // another thread's error did it
        } catch (...) {
          keep_error();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void fetch(Fetcher& fetcher) {
    while (!stop_) {
      const std::size_t i = next_++;
      if (i >= files_.size()) return;
      fetcher.blob(cache_, commit_, files_[i], progress_);
      cache_.link(commit_, files_[i]);
      progress_.finished(files_[i].path, files_[i].size);
    }
  }

  void keep_error() {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    stop_ = true;
  }

  const RepositoryCache& cache_;
  const std::string& commit_;
  std::vector<RemoteFile> files_;
  Progress& progress_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

std::filesystem::path download(const Repository& repository, const Environment& environment,
                               const DownloadOptions& options) {
  if (environment.offline)
    throw Error("[hub] " + repository.describe() +
                ": HF_HUB_OFFLINE is set, nothing is downloaded; unset it, or run " +
                "where there is a network: " + download_command(repository, options.include));
  const std::atomic<bool> never{false};
  const std::string url = list_url(environment, repository);
  const FileList list = parse_file_list(
      Fetcher(environment, repository, never, options.retry).text(url, "the list of files"), url);
  const Selection selection = select_files(list, repository, options.include);
  if (!selection.refused.empty())
    log_warning("not downloaded, since they may run code when opened: " + join(selection.refused, ", "));

  const RepositoryCache cache(environment.cache, repository);
  make_cache(environment.cache);
  const std::uint64_t missing = missing_bytes(cache, selection.files);
  io::require_free_space(environment.cache, missing);
  std::uint64_t total = 0;
  for (const RemoteFile& file : selection.files) total += file.size;
  log_info(repository.describe() + " at " + list.commit + ": " + counted(selection.files.size(), "file") +
           ", " + format_bytes(total) +
           (missing == 0 ? ", all there" : ", " + format_bytes(missing) + " to download"));
  {
    Progress progress(selection.files.size(), total, options.on_terminal);
    Work(cache, list.commit, selection.files, progress).run(repository, environment, options);
  }
  cache.record_finished(list.commit, options.include, selection.files);
  cache.write_reference(repository.revision, list.commit);
  return cache.snapshot(list.commit);
}

std::string download_command(const Repository& repository, const std::vector<std::string>& include) {
  std::string command = "lorikeet download " + repository.name;
  if (repository.kind == RepositoryKind::kDataset) command += " --dataset";
  if (repository.revision != "main") command += " --revision " + repository.revision;
  for (const std::string& glob : include) command += " --include '" + glob + "'";
  return command;
}

}  // namespace lorikeet::hub
