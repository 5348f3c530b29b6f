#include "hub/file_list.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::hub {
namespace {

constexpr std::size_t kMostPathBytes = 1024;
constexpr std::size_t kMostPartBytes = 200;

Digest read_digest(const JsonView& file) {
  const auto lfs = file.maybe("lfs");
  Digest digest{lfs ? Digest::Kind::kSha256 : Digest::Kind::kGitSha1,
                lfs ? lfs->at("sha256").as_string() : file.at("blobId").as_string()};
  if (!is_hex(digest.hex, lfs ? 64 : 40)) file.fail("a checksum in hexadecimal");
  return digest;
}

RemoteFile read_file_entry(const JsonView& file) {
  RemoteFile remote{.path = file.at("rfilename").as_string(), .digest = read_digest(file)};
  require_safe_path(remote.path, file.where());
  const std::int64_t size = file.at("size").as_int();
  if (size < 0) file.fail("a size of at least 0");
  remote.size = static_cast<std::uint64_t>(size);
  return remote;
}

// A file can't be a folder too.
void require_no_nesting(const std::set<std::string>& paths, const std::string& where) {
  for (const std::string& path : paths) {
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      if (paths.contains(path.substr(0, slash)))
        throw Error("[" + where + "] '" + escape_control(path.substr(0, slash)) +
                    "' is both a file and a folder");
    }
  }
}

}  // namespace

void require_safe_path(const std::string& path, const std::string& where) {
  const std::vector<std::string> parts = split(path, '/');
  const bool safe = path.size() <= kMostPathBytes && is_utf8(path) && escape_control(path) == path &&
                    path.find_first_of("\\\n\t") == std::string::npos &&
                    std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
                      return !part.empty() && part != "." && part != ".." && part.size() <= kMostPartBytes;
                    });
  if (!safe)
    throw Error("[hub] " + where + ": expected a file's path inside the repository, got '" +
                escape_control(path) + "', which could lead out of it; nothing is written");
}

FileList parse_file_list(std::string_view json, const std::string& where) {
  const Json root = Json::parse(json, where);
  const JsonView view(root, where);
  FileList list{.commit = view.at("sha").as_string(), .files = {}};
  if (!is_hex(list.commit, 40)) view.at("sha").fail("a commit, 40 hexadecimal digits");
  std::set<std::string> paths;
  for (const JsonView& file : view.at("siblings").items()) {
    list.files.push_back(read_file_entry(file));
    if (!paths.insert(list.files.back().path).second)
      throw Error("[" + file.where() + "] the file '" + list.files.back().path + "' is listed twice");
  }
  require_no_nesting(paths, where);
  return list;
}

}  // namespace lorikeet::hub
