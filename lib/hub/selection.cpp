#include "hub/selection.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"
#include "io/shard_index.h"

namespace lorikeet::hub {
namespace {

constexpr auto kCode = std::to_array<std::string_view>(
    {".bin", ".pt",   ".pth",   ".pkl", ".pickle", ".ckpt", ".joblib", ".dill", ".npy",   ".npz",
     ".h5",  ".hdf5", ".keras", ".mar", ".nemo",   ".py",   ".pyc",    ".pyd",  ".ipynb", ".sh",
     ".so",  ".dll",  ".dylib", ".exe", ".bat",    ".ps1",  ".js",     ".jar",  ".whl"});
constexpr auto kModelFiles = std::to_array<std::string_view>({".json", ".jinja", ".txt", ".model"});
constexpr auto kDataFiles = std::to_array<std::string_view>(
    {".parquet", ".arrow", ".feather", ".json", ".jsonl", ".csv", ".tsv", ".txt"});
constexpr auto kCompressed = std::to_array<std::string_view>({".gz", ".zst"});

bool ends_with_any(const std::string& text, const auto& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view end) { return text.ends_with(end); });
}

bool matches(const std::string& glob, const std::string& text) {
  const std::string whole = glob.ends_with('/') ? glob + "*" : glob;
  return fnmatch(whole.c_str(), text.c_str(), 0) == 0;
}

// model.safetensors, model-00001-of-00004.safetensors; not a variant such as model.fp16.safetensors.
bool is_usual_weights(const std::string& path) {
  return path == io::kWeightsFile || matches("model-[0-9]*-of-[0-9]*.safetensors", path);
}

bool is_data_file(const std::string& path) {
  std::string name = ascii_lower(path);
  for (const std::string_view ending : kCompressed) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return ends_with_any(name, kDataFiles);
}

std::vector<RemoteFile> usual_files(const FileList& list, RepositoryKind kind) {
  const bool usual = std::any_of(list.files.begin(), list.files.end(),
                                 [](const RemoteFile& file) { return is_usual_weights(file.path); });
  const auto of_model = [&](const std::string& path) {
    if (path.find('/') != std::string::npos) return false;
    if (path.ends_with(".safetensors")) return !usual || is_usual_weights(path);
    return ends_with_any(path, kModelFiles);
  };
  std::vector<RemoteFile> files;
  for (const RemoteFile& file : list.files) {
    if (kind == RepositoryKind::kModel ? of_model(file.path) : is_data_file(file.path)) files.push_back(file);
  }
  return files;
}

// Several paths for an error's text.
std::string some_of(const std::vector<std::string>& paths) { return join_some(paths, 5); }

void require_weights(const FileList& list, const std::vector<RemoteFile>& files,
                     const Repository& repository) {
  if (std::any_of(files.begin(), files.end(),
                  [](const auto& file) { return file.path.ends_with(".safetensors"); }))
    return;
  std::vector<std::string> pickles;
  for (const RemoteFile& file : list.files) {
    if (ends_with_any(file.path, std::array<std::string_view, 3>{".bin", ".pt", ".pth"}))
      pickles.push_back(file.path);
  }
  throw Error("[hub] " + repository.describe() + " holds no safetensors weights" +
              (pickles.empty() ? std::string()
                               : ", only pickles (" + some_of(pickles) +
                                     "), which can run code when they are read and are never downloaded") +
              "; many repositories have a converted copy under --revision refs/pr/N (see its Community tab); "
              "--include GLOB downloads other files");
}

}  // namespace

bool may_run_code(const std::string& path) { return ends_with_any(ascii_lower(path), kCode); }

Selection select_files(const FileList& list, const Repository& repository,
                       const std::vector<std::string>& include) {
  Selection selection;
  if (include.empty()) {
    selection.files = usual_files(list, repository.kind);
    if (repository.kind == RepositoryKind::kModel) require_weights(list, selection.files, repository);
  } else {
    for (const RemoteFile& file : list.files) {
      if (std::none_of(include.begin(), include.end(),
                       [&](const auto& glob) { return matches(glob, file.path); }))
        continue;
      if (may_run_code(file.path)) {
        selection.refused.push_back(file.path);
      } else {
        selection.files.push_back(file);
      }
    }
  }
  if (!selection.files.empty()) return selection;
  std::vector<std::string> paths;
  paths.reserve(list.files.size());
  for (const RemoteFile& file : list.files) paths.push_back(file.path);
  throw Error("[hub] no file to download in " + repository.describe() +
              (selection.refused.empty()
                   ? "; it has " + (paths.empty() ? "none" : some_of(paths)) + "; choose with --include GLOB"
                   : ": " + some_of(selection.refused) +
                         " may run code when opened (pickles, scripts, libraries), and such files are never "
                         "downloaded"));
}

}  // namespace lorikeet::hub
