#include "hub/repository.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "hub/digest.h"
#include "hub/file_list.h"

namespace lorikeet::hub {
namespace {

constexpr std::size_t kMostNameBytes = 96;
constexpr std::size_t kMostRevisionBytes = 200;

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
}

// huggingface_hub's rules (utils/_validators.py).
bool is_name(const std::string& text) {
  if (text.size() > kMostNameBytes || text.find("..") != std::string::npos ||
      text.find("--") != std::string::npos || text.ends_with(".git"))
    return false;
  const std::vector<std::string> parts = split(text, '/');
  const auto good = [](const std::string& part) {
    const auto edge = [](char c) { return c == '-' || c == '.'; };
    return is_word(part) && !edge(part.front()) && !edge(part.back());
  };
  return parts.size() <= 2 && std::all_of(parts.begin(), parts.end(), good);
}

}  // namespace

std::string Repository::describe() const { return revision == "main" ? name : name + "@" + revision; }

std::string Repository::folder_name() const {
  return (kind == RepositoryKind::kModel ? "models--" : "datasets--") + join(split(name, '/'), "--");
}

bool is_commit(const std::string& revision) { return is_hex(revision, 40); }

void require_revision(const std::string& revision) {
  const std::vector<std::string> parts = split(revision, '/');
  const bool good =
      revision.size() <= kMostRevisionBytes && std::all_of(parts.begin(), parts.end(), [](const auto& p) {
        return is_word(p) && p.front() != '.' && p.front() != '-' && p.find("..") == std::string::npos;
      });
  if (!good)
    throw Error("[hub] expected a revision (a branch, a tag or a commit), got '" + escape_control(revision) +
                "'");
}

Repository parse_repository(std::string_view text, RepositoryKind kind) {
  const std::size_t at = text.find('@');
  Repository repository{.kind = kind, .name = std::string(text.substr(0, at))};
  if (at != std::string_view::npos) repository.revision = text.substr(at + 1);
  if (!is_name(repository.name))
    throw Error(
        "[hub] expected a repository's name as the Hub shows it (OWNER/NAME, with @REVISION where it isn't "
        "main), got '" +
        escape_control(text) + "'");
  require_revision(repository.revision);
  return repository;
}

std::optional<HubPath> parse_hub_path(std::string_view path, RepositoryKind kind) {
  constexpr std::string_view kPrefix = "hub:";
  if (!path.starts_with(kPrefix)) return std::nullopt;
  const std::string_view rest = path.substr(kPrefix.size());
  const std::size_t owner_end = rest.find('/');
  const std::size_t name_end =
      owner_end == std::string_view::npos ? std::string_view::npos : rest.find('/', owner_end + 1);
  HubPath result{.repository = parse_repository(rest.substr(0, name_end), kind), .file = {}};
  if (name_end == std::string_view::npos) return result;
  result.file = rest.substr(name_end + 1);
  if (kind == RepositoryKind::kModel)
    throw Error(
        "[hub] '" + escape_control(path) +
        "': expected a model's repository, got a file in one; give hub:" + result.repository.describe());
  require_safe_path(result.file, "'" + escape_control(path) + "'");
  return result;
}

}  // namespace lorikeet::hub
