#include "hub/cache.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/strings.h"
#include "base/temporary.h"

namespace lorikeet::hub {
namespace {

constexpr std::size_t kMostReferenceBytes = 1U << 10;
constexpr std::size_t kMostRecordBytes = std::size_t{64} << 20;

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error("[hub] can't make the folder '" + escape_control(folder.string()) + "': " + error.message() +
                    "; HF_HUB_CACHE chooses another cache",
                ErrorKind::kEnvironment);
}

}  // namespace

RepositoryCache::RepositoryCache(std::filesystem::path cache, const Repository& repository)
    : cache_(std::move(cache)), folder_(cache_ / repository.folder_name()), name_(repository.folder_name()) {}

std::filesystem::path RepositoryCache::incomplete(const Digest& digest) const {
  return folder_ / "blobs" / (digest.hex + ".incomplete");
}

std::filesystem::path RepositoryCache::lock(const Digest& digest) const {
  return cache_ / ".locks" / name_ / (digest.hex + ".lock");
}

bool RepositoryCache::has_blob(const RemoteFile& file) const {
  std::error_code error;
  return std::filesystem::file_size(blob(file.digest), error) == file.size && !error;
}

std::optional<std::string> RepositoryCache::known_commit(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const std::filesystem::path path = folder_ / "refs" / revision;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  const std::string commit = trim(read_file(path, kMostReferenceBytes));
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

void RepositoryCache::link(const std::string& commit, const RemoteFile& file) const {
  const std::filesystem::path path = snapshot(commit) / file.path;
  const std::filesystem::path target = std::filesystem::relative(blob(file.digest), path.parent_path());
  std::error_code error;
  if (std::filesystem::read_symlink(path, error) == target && !error) return;
  make_folder(path.parent_path());
  const std::filesystem::path fresh = temporary_beside(path);
  std::filesystem::create_symlink(target, fresh, error);
  if (!error) std::filesystem::rename(fresh, path, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
  throw Error("[hub] can't link '" + escape_control(path.string()) + "': " + error.message(),
              ErrorKind::kEnvironment);
}

void RepositoryCache::write_reference(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision) || known_commit(revision) == commit) return;
  const std::filesystem::path path = folder_ / "refs" / revision;
  make_folder(path.parent_path());
  write_file_atomic(path, commit);
}

std::filesystem::path RepositoryCache::record(const std::string& commit,
                                              const std::vector<std::string>& include) const {
  return folder_ / "lorikeet" / (commit + "-" + sha256_hex(join(include, "\n")).substr(0, 16) + ".json");
}

void RepositoryCache::record_finished(const std::string& commit, const std::vector<std::string>& include,
                                      const std::vector<RemoteFile>& files) const {
  Json::Array paths;
  for (const RemoteFile& file : files) paths.emplace_back(file.path);
  const std::filesystem::path path = record(commit, include);
  make_folder(path.parent_path());
  write_file_atomic(path, Json(std::move(paths)).dump() + "\n");
}

bool RepositoryCache::is_finished(const std::string& commit, const std::vector<std::string>& include) const {
  const std::filesystem::path path = record(commit, include);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const Json json = Json::parse(read_file(path, kMostRecordBytes), path.string());
  const std::vector<JsonView> paths = JsonView(json, path.string()).items();
  return std::all_of(paths.begin(), paths.end(), [&](const JsonView& file) {
    return std::filesystem::is_regular_file(snapshot(commit) / file.as_string(), ignored);
  });
}

}  // namespace lorikeet::hub
