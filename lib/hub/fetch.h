#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "hub/cache.h"
#include "hub/environment.h"
#include "hub/file_list.h"
#include "hub/http.h"
#include "hub/progress.h"
#include "hub/repository.h"

namespace lorikeet::hub {

/// How often an attempt is repeated that brought nothing: connections that fail, are cut or stall, and the
/// statuses of is_temporary. The wait doubles each time, unless the server names one.
struct RetryPolicy {
  int most_attempts = 6;
  std::chrono::milliseconds first_wait{500};
  /// The server asks for a longer wait than this: an error says so instead.
  std::chrono::seconds longest_wait{300};
};

/// One thread's transfers of a repository's files at one commit. Other threads' `stop` ends them.
class Fetcher {
 public:
  Fetcher(const Environment& environment, const Repository& repository, const std::atomic<bool>& stop,
          const RetryPolicy& policy = {});

  /// The body of a small answer, the list of files. Throws Error.
  std::string text(const std::string& url, const std::string& what);

  /// Makes the file's blob be there. Bytes go to <digest>.incomplete, from where they ended last time, and
  /// the file gets its name only after all of it was read back from the disk with the size and checksum of
  /// the list; what has another checksum is deleted, fetched once more from its beginning, and then an error.
  /// Bytes are written at their own offsets: two processes that write the same blob, where the file system
  /// has no locks, write the same. Throws Error.
  void blob(const RepositoryCache& cache, const std::string& commit, const RemoteFile& file,
            Progress& progress);

 private:
  void complete(const std::filesystem::path& partial, const std::string& url, const RemoteFile& file,
                Progress& progress);
  void wait(const HttpResult& result, int attempt, const std::string& what);

  const Environment& environment_;
  const Repository& repository_;
  const std::atomic<bool>& stop_;
  RetryPolicy policy_;
  HttpClient client_;
};

/// The Hub's addresses.
std::string list_url(const Environment& environment, const Repository& repository);
std::string file_url(const Environment& environment, const Repository& repository, const std::string& commit,
                     const std::string& path);

/// Thrown out of a transfer that another thread's `stop` ended.
struct Stopped {};

}  // namespace lorikeet::hub
