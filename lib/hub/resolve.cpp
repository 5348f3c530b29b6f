#include "hub/resolve.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "hub/cache.h"
#include "io/shard_index.h"

namespace lorikeet::hub {
namespace {

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

bool has_weights(const std::filesystem::path& snapshot) {
  if (is_file(snapshot / io::kWeightsFile)) return true;
  const std::filesystem::path index = snapshot / io::kShardIndexFile;
  if (!is_file(index)) return false;
  const std::vector<std::string> shards = io::read_shard_index(index).shards();
  return std::all_of(shards.begin(), shards.end(),
                     [&](const auto& shard) { return is_file(snapshot / shard); });
}

// As far as that is known without the repository's list.
bool looks_whole(const std::filesystem::path& snapshot, const HubPath& path) {
  std::error_code ignored;
  if (path.repository.kind == RepositoryKind::kDataset)
    return std::filesystem::is_directory(snapshot, ignored);
  return is_file(snapshot / "config.json") && has_weights(snapshot) &&
         (is_file(snapshot / "tokenizer.json") || is_file(snapshot / "tokenizer.model"));
}

std::vector<std::string> globs_of(const HubPath& path) {
  if (path.file.empty()) return {};
  return {path.file, path.file + "/*"};  // a folder stands for what is in it
}

class Resolver {
 public:
  Resolver(const HubPath& path, const Environment& environment, const DownloadOptions& options)
      : path_(path),
        environment_(environment),
        options_(options),
        cache_(environment.cache, path.repository) {
    options_.include = globs_of(path);
  }

  std::filesystem::path run(Absent absent) {
    const auto commit = cache_.known_commit(path_.repository.revision);
    if (commit && cache_.is_finished(*commit, options_.include)) return inside(cache_.snapshot(*commit));
    const bool usable = commit && looks_whole(cache_.snapshot(*commit), path_);
    if (environment_.offline || absent == Absent::kError) {
      if (usable) return inside(cache_.snapshot(*commit));
      throw Error("[hub] " + path_.repository.describe() + " is not in the cache '" +
                  escape_control(environment_.cache.string()) + "', or not whole" +
                  (environment_.offline ? ", and HF_HUB_OFFLINE is set" : "") +
                  "; to download it: " + download_command(path_.repository, options_.include));
    }
    try {
      return inside(fetch(commit));
    } catch (const Error& error) {
      if (!usable || error.kind() != ErrorKind::kEnvironment) throw;
      log_warning(error.what() + std::string("; using the snapshot that is there"));
      return inside(cache_.snapshot(*commit));
    }
  }

 private:
  std::filesystem::path fetch(const std::optional<std::string>& commit) {
    Repository repository = path_.repository;
    if (commit) repository.revision = *commit;
    return download(repository, environment_, options_);
  }

  std::filesystem::path inside(const std::filesystem::path& snapshot) const {
    return path_.file.empty() ? snapshot : snapshot / path_.file;
  }

  const HubPath& path_;
  const Environment& environment_;
  DownloadOptions options_;
  RepositoryCache cache_;
};

}  // namespace

std::filesystem::path resolve(const HubPath& path, const Environment& environment, Absent absent,
                              const DownloadOptions& options) {
  return Resolver(path, environment, options).run(absent);
}

std::optional<std::string> repository_of_snapshot(const std::filesystem::path& folder) {
  const std::filesystem::path snapshot = folder.has_filename() ? folder : folder.parent_path();
  const std::filesystem::path repository = snapshot.parent_path().parent_path();
  constexpr std::string_view kPrefix = "models--";
  std::string name = repository.filename().string();
  if (!is_commit(snapshot.filename().string()) || snapshot.parent_path().filename() != "snapshots" ||
      !name.starts_with(kPrefix))
    return std::nullopt;
  name.erase(0, kPrefix.size());
  const std::size_t dashes = name.find("--");
  if (dashes != std::string::npos) name.replace(dashes, 2, "/");
  return name;
}

}  // namespace lorikeet::hub
