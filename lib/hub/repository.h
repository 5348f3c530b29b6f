#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lorikeet::hub {

enum class RepositoryKind { kModel, kDataset };

/// A repository of the Hub at a revision: a branch, a tag or a commit.
struct Repository {
  RepositoryKind kind = RepositoryKind::kModel;
  std::string name;  ///< "Qwen/Qwen3-0.6B"; a few old ones have no owner: "gpt2"
  std::string revision = "main";

  /// "Qwen/Qwen3-0.6B", with "@revision" where that isn't main.
  std::string describe() const;
  /// Its folder in the cache: "models--Qwen--Qwen3-0.6B", "datasets--tatsu-lab--alpaca".
  std::string folder_name() const;
};

/// True for the 40 hexadecimal digits of a commit.
bool is_commit(const std::string& revision);

/// "REPO" or "REPO@REVISION". Throws Error for what can't be a repository's or revision's name; what passes
/// has no "..", no empty part and no character that means something to a shell, a URL or a file system.
Repository parse_repository(std::string_view text, RepositoryKind kind);

/// Throws Error as parse_repository does.
void require_revision(const std::string& revision);

/// A path that names something on the Hub: "hub:REPO[@REVISION]", for data also
/// "hub:OWNER/NAME[@REVISION]/FILE", where FILE is a file, a folder or a glob in the repository.
struct HubPath {
  Repository repository;
  std::string file;  ///< "" for the whole repository
};

/// Nothing for a path that doesn't start with "hub:". Throws Error for one that does and is malformed.
std::optional<HubPath> parse_hub_path(std::string_view path, RepositoryKind kind);

}  // namespace lorikeet::hub
