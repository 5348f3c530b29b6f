#include "data/source_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/file_kind.h"

namespace lorikeet::data {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFoldersDeep = 8;

// Words by which the Hub tells splits (huggingface/datasets, data_files.py).
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kSplitWords{
    {{"train", "train"},
     {"training", "train"},
     {"validation", "validation"},
     {"valid", "validation"},
     {"val", "validation"},
     {"dev", "validation"},
     {"test", "test"},
     {"testing", "test"},
     {"eval", "test"},
     {"evaluation", "test"}}};

bool is_pattern(const fs::path& path) { return path.string().find_first_of("*?[") != std::string::npos; }

std::string canonical_split(std::string_view word) {
  for (const auto& [known, split] : kSplitWords)
    if (known == word) return std::string(split);
  return "";
}

// The split that a word of the path names ("data/train-00000-of-00001.parquet"), the last one; "" for none.
std::string split_of(const fs::path& relative) {
  std::string split, word;
  for (const char c : ascii_lower(relative.string()) + ".") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += c;
      continue;
    }
    if (const std::string found = canonical_split(word); !found.empty()) split = found;
    word.clear();
  }
  return split;
}

bool is_rows_file(const fs::path& path) {
  static const std::set<std::string> kDescriptions{"dataset_info.json", "dataset_infos.json",
                                                   "dataset_dict.json", "state.json"};
  const std::string name = path.filename().string();
  return !name.starts_with('.') && !kDescriptions.contains(name) && is_data_file_name(name);
}

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Error("[data] '" + escape_control(path.string()) + "': " + what);
}

// All files below `folder`, relative to it, sorted; links to files and folders are followed.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator walk(folder, fs::directory_options::follow_directory_symlink, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    const fs::path relative = walk->path().lexically_relative(folder);
    std::error_code ignored;
    const bool hidden = walk->path().filename().string().starts_with('.');
    if (walk->is_directory(ignored) && (hidden || walk.depth() >= kMostFoldersDeep))
      walk.disable_recursion_pending();
    if (walk->is_regular_file(ignored)) files.push_back(relative);
  }
  if (error) fail(folder, "the folder can't be read: " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

// The pattern's parts against the path's, "**" standing for any number of folders.
bool matches(const std::vector<std::string>& pattern, const std::vector<std::string>& parts,
             std::size_t p = 0, std::size_t i = 0) {
  if (p == pattern.size()) return i == parts.size();
  if (pattern[p] == "**") {
    for (std::size_t k = i; k <= parts.size(); ++k)
      if (matches(pattern, parts, p + 1, k)) return true;
    return false;
  }
  return i < parts.size() && fnmatch(pattern[p].c_str(), parts[i].c_str(), FNM_PERIOD) == 0 &&
         matches(pattern, parts, p + 1, i + 1);
}

std::vector<std::string> parts_of(const fs::path& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : path) parts.push_back(part.string());
  return parts;
}

std::vector<fs::path> matching_files(const fs::path& pattern) {
  fs::path root, rest;
  for (const fs::path& part : pattern) {
    if (rest.empty() && !is_pattern(part)) {
      root /= part;
    } else {
      rest /= part;
    }
  }
  std::vector<fs::path> files;
  const fs::path folder = root.empty() ? fs::path(".") : root;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return files;
  const std::vector<std::string> wanted = parts_of(rest);
  for (const fs::path& file : files_below(folder))
    if (matches(wanted, parts_of(file))) files.push_back(root / file);
  return files;
}

// Files of other splits are meant to be left out; of those whose names tell none, people may think otherwise.
void warn_of_left_out(const fs::path& folder, const std::string& split, const std::vector<fs::path>& files) {
  if (files.empty()) return;
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const fs::path& file : files) names.push_back(file.lexically_relative(folder).string());
  log_warning("[data] '" + escape_control(folder.string()) + "' has files of the split '" +
              escape_control(split) + "', which are read; left out are " + std::to_string(files.size()) +
              " whose names tell no split: " + escape_control(join_some(names, 4)));
}

std::vector<fs::path> files_of_split(const fs::path& folder, const std::string& split) {
  std::map<std::string, std::vector<fs::path>> by_split;
  for (const fs::path& file : files_below(folder))
    if (is_rows_file(file)) by_split[split_of(file)].push_back(folder / file);
  if (by_split.empty()) {
    fail(folder,
         "the folder holds no file of rows (.jsonl, .json, .csv, .tsv, .parquet, .arrow, .feather, also .gz "
         "or "
         ".zst)");
  }
  const std::string word = canonical_split(ascii_lower(split));
  const std::string wanted = split.empty() ? "train" : word.empty() ? split : word;
  if (const auto found = by_split.find(wanted); found != by_split.end()) {
    warn_of_left_out(folder, wanted, by_split[""]);
    return found->second;
  }
  if (split.empty() && by_split.size() == 1 && by_split.contains("")) return by_split[""];
  std::vector<std::string> names;
  for (const auto& [name, files] : by_split)
    if (!name.empty()) names.push_back(name);
  fail(folder, "expected files of the split '" + escape_control(wanted) + "', found " +
                   (names.empty() ? "none with a split in their names" : "those of " + join(names, ", ")) +
                   "; set data.train.split, or name the files by a pattern such as '*.parquet'");
}

}  // namespace

std::vector<fs::path> find_source_files(const fs::path& path, const std::string& split) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return files_of_split(path, split);
  if (!split.empty()) {
    fail(path, "data.train.split (" + escape_control(split) +
                   ") chooses among the files of a folder, and this is none");
  }
  if (fs::exists(path, ignored) || !is_pattern(path)) return {path};
  std::vector<fs::path> files = matching_files(path);
  if (files.empty()) fail(path, "no file matches this pattern");
  return files;
}

bool source_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) || (is_pattern(path) && !matching_files(path).empty());
}

}  // namespace lorikeet::data
