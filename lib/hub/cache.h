#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/file_list.h"
#include "hub/repository.h"

namespace lorikeet::hub {

/// One repository's part of the cache that all Hugging Face tools share:
///
///     models--OWNER--NAME/blobs/<digest>              the contents
///     models--OWNER--NAME/refs/main                   the commit that the branch was at
///     models--OWNER--NAME/snapshots/<commit>/<path>   links to ../../blobs/<digest>
///     .locks/models--OWNER--NAME/<digest>.lock        held by whoever writes that blob
///
/// A blob stands under its name only once it is whole; until then it is <digest>.incomplete. A reference is
/// written after the last link, so that it never leads to a snapshot of ours that lacks files. Source:
/// huggingface_hub, file_download.py.
class RepositoryCache {
 public:
  RepositoryCache(std::filesystem::path cache, const Repository& repository);

  const std::filesystem::path& cache() const { return cache_; }
  std::filesystem::path blob(const Digest& digest) const { return folder_ / "blobs" / digest.hex; }
  std::filesystem::path incomplete(const Digest& digest) const;
  std::filesystem::path lock(const Digest& digest) const;
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

  /// True where the blob is there with its size.
  bool has_blob(const RemoteFile& file) const;
  /// The commit that `revision` is known to be at: itself where it is one, else what refs/ says, if anything.
  std::optional<std::string> known_commit(const std::string& revision) const;

  /// Makes snapshots/<commit>/<path> a link to the file's blob. What else stands there is replaced.
  void link(const std::string& commit, const RemoteFile& file) const;
  /// Makes refs/<revision> say `commit`; nothing for a revision that is a commit.
  void write_reference(const std::string& revision, const std::string& commit) const;

  // Which downloads of ours were finished, so that the network needn't be asked: lorikeet/<commit>-<hash of
  // what was asked for>.json lists the paths. Other tools pass over that folder.
  void record_finished(const std::string& commit, const std::vector<std::string>& include,
                       const std::vector<RemoteFile>& files) const;
  /// True where such a download was finished and all its files are still there.
  bool is_finished(const std::string& commit, const std::vector<std::string>& include) const;

 private:
  std::filesystem::path record(const std::string& commit, const std::vector<std::string>& include) const;

  std::filesystem::path cache_, folder_;
  std::string name_;
};

}  // namespace lorikeet::hub
