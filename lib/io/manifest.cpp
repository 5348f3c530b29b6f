#include "io/manifest.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/file_pieces.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "io/folders.h"

namespace lorikeet::io {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

std::string sha256_of(const MappedFile& file) {
  Sha256 hash;
  for_each_piece(file, [&](std::string_view piece) { hash.update(piece); });
  return hash.hex();
}

}  // namespace

Json list_files(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  Json files{Json::Object{}};
  for (const std::string& name : names) {
    const MappedFile file(folder / name);
    files.set(
        name,
        Json().set("bytes", static_cast<std::int64_t>(file.bytes().size())).set("sha256", sha256_of(file)));
  }
  return files;
}

void check_files(const std::filesystem::path& folder, const JsonView& list) {
  for (const auto& [name, listed] : list.members()) {
    const auto differs = [&, &name = name](const std::string& how) {
      throw Error("[checkpoint] '" + escape_control((folder / name).string()) + "' " + how +
                  ": it was damaged or replaced after it was written");
    };
    if (!std::filesystem::is_regular_file(folder / name)) differs("is missing");
    const MappedFile file(folder / name);
    if (static_cast<std::int64_t>(file.bytes().size()) != listed.at("bytes").as_int())
      differs("has " + std::to_string(file.bytes().size()) + " bytes, its manifest says " +
              std::to_string(listed.at("bytes").as_int()));
    if (sha256_of(file) != listed.at("sha256").as_string())
      differs("has another SHA-256 than its manifest says");
  }
}

void write_manifest(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_symlink() && entry.is_regular_file()) names.insert(entry.path().filename().string());
  }
  for (const char* own : {kMarkerFile, kManifestFile}) names.erase(own);
  write_file_atomic(
      folder / kManifestFile,
      Json().set("format", kFormat).set("files", list_files(folder, {names.begin(), names.end()})).dump(2) +
          "\n");
}

void check_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestFile;
  if (!std::filesystem::exists(path)) {
    return log_warning("[checkpoint] '" + escape_control(folder.string()) + "' has no " + kManifestFile +
                       ", so damage can't be found; version 0.1 wrote it, or the file was removed");
  }
  const Json json = Json::parse(read_file(path, kMostBytes), path.string());
  const JsonView manifest(json, path.string());
  if (manifest.at("format").as_int() != kFormat) manifest.at("format").fail(std::to_string(kFormat));
  check_files(folder, manifest.at("files"));
}

}  // namespace lorikeet::io
