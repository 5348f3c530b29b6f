#include "data/source_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <regex>
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

constexpr std::size_t kMostLevels = 9;  // of folders, the first one included

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

// The split that a word of `text` names, the last one; "" for none.
std::string split_in(std::string_view text) {
  std::string split, word;
  for (const char c : ascii_lower(text) + ".") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += c;
      continue;
    }
    if (const std::string found = canonical_split(word); !found.empty()) split = found;
    word.clear();
  }
  return split;
}

// NAME of "NAME-00000-of-00003...", as the Hub writes the parts of a split; "" of any other name.
std::string part_of(const std::string& file_name) {
  static const std::regex kPart("(\\w+(?:\\.\\w+)*)-[0-9]{5}-of-[0-9]{5}.*");
  std::smatch found;
  return std::regex_match(file_name, found, kPart) ? found[1].str() : "";
}

// The split of a file: what the parts of one are named by ("data/train_sft-00000-of-00003.parquet":
// train_sft), or what a word of its path says ("train/data-00000-of-00001.arrow"); "" for none.
std::string split_of(const fs::path& relative) {
  std::string name = part_of(relative.filename().string());
  if (canonical_split(ascii_lower(name)).empty() && !split_in(name).empty()) return name;
  return split_in(relative.string());
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

// Finds files below a folder, and links with names of data files that lead nowhere. Links to folders are
// followed, but none back up to a folder on the way.
class Walk {
 public:
  explicit Walk(fs::path root) : root_(std::move(root)) {}

  // All files in at most `levels` folders above each other, relative to the root, sorted.
  std::vector<fs::path> files(std::size_t levels) {
    visit({}, levels);
    std::sort(files_.begin(), files_.end());
    return std::move(files_);
  }

 private:
  void visit(const fs::path& relative, std::size_t levels) {
    const fs::path folder = relative.empty() ? root_ : root_ / relative;
    std::error_code error, ignored;
    const auto [on_the_way, is_new] = on_the_way_.insert(fs::weakly_canonical(folder, ignored));
    if (!is_new) return;
    std::vector<fs::path> folders;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const fs::path name = entry->path().filename();
      const bool leads_nowhere = is_rows_file(name) && entry->is_symlink(ignored) && !entry->exists(ignored);
      if (entry->is_regular_file(ignored) || leads_nowhere) files_.push_back(relative / name);
      if (entry->is_directory(ignored) && !name.string().starts_with('.')) folders.push_back(relative / name);
    }
    if (error == std::errc::permission_denied && !relative.empty()) {
      log_warning("[data] left out, since it may not be read: '" + escape_control(folder.string()) + "'");
    } else if (error) {
      fail(folder, "the folder can't be read: " + error.message());
    }
    if (levels > 1)
      for (const fs::path& below : folders) visit(below, levels - 1);
    on_the_way_.erase(on_the_way);
  }

  fs::path root_;
  std::set<fs::path> on_the_way_;
  std::vector<fs::path> files_;
};

// `files` without those that a link to a folder has named before, in this list or in one that shares `seen`.
std::vector<fs::path> without_repeats(const std::vector<fs::path>& files, std::set<fs::path>& seen) {
  std::vector<fs::path> once;
  std::error_code ignored;
  for (const fs::path& file : files) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (seen.insert(fs::weakly_canonical(folder, ignored) / file.filename()).second) once.push_back(file);
  }
  return once;
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
  const bool any_depth = std::find(wanted.begin(), wanted.end(), "**") != wanted.end();
  for (const fs::path& file : Walk(folder).files(any_depth ? kMostLevels : wanted.size()))
    if (matches(wanted, parts_of(file))) files.push_back(root / file);
  std::set<fs::path> seen;
  return without_repeats(files, seen);
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

// Folders of a repository may hold several configurations of the same rows.
void warn_of_folders(const fs::path& folder, const std::vector<fs::path>& files) {
  std::map<std::string, std::size_t> by_folder;
  for (const fs::path& file : files) ++by_folder[file.parent_path().lexically_relative(folder).string()];
  if (by_folder.size() < 2) return;
  std::vector<std::string> names;
  names.reserve(by_folder.size());
  for (const auto& [name, count] : by_folder) names.push_back(name + " (" + std::to_string(count) + ")");
  log_warning("[data] '" + escape_control(folder.string()) + "': the files of " +
              std::to_string(by_folder.size()) + " folders are read together: " +
              escape_control(join_some(names, 6)) + "; where they are versions of the same rows, name one");
}

// Rows that a link leads to and that aren't there would be missing unnoticed.
std::vector<fs::path> existing(std::vector<fs::path> files) {
  for (const fs::path& file : files) {
    std::error_code ignored;
    if (!fs::exists(file, ignored))
      fail(file, "a link that leads to no file; download the file anew, or remove the link");
  }
  return files;
}

// A file beside its packed form holds the same rows: read together, they would count twice.
void refuse_packed_copies(const std::vector<fs::path>& files) {
  const std::set<fs::path> all(files.begin(), files.end());
  for (const fs::path& file : files) {
    const std::string ending = ascii_lower(file.extension().string());
    if (ending != ".gz" && ending != ".zst") continue;
    const fs::path unpacked = fs::path(file).replace_extension();
    if (!all.contains(unpacked)) continue;
    fail(file, "its rows would be read twice, since '" + escape_control(unpacked.filename().string()) +
                   "' stands beside it; remove one of the two, or name the files to read");
  }
}

using FilesBySplit = std::map<std::string, std::vector<fs::path>>;

// The split that is asked for, by its own name or the usual one; where none is asked for, the only one where
// files have none, train, or the one that is named after it. nullptr where there is none.
const FilesBySplit::value_type* find_split(const FilesBySplit& by_split, const std::string& asked) {
  const auto find = [&](const std::string& name) {
    const auto found = by_split.find(name);
    return name.empty() || found == by_split.end() ? nullptr : &*found;
  };
  if (const auto* split = find(asked)) return split;
  if (!asked.empty()) return find(canonical_split(ascii_lower(asked)));
  if (by_split.size() == 1 && by_split.contains("")) return &*by_split.begin();
  if (const auto* split = find("train")) return split;
  const FilesBySplit::value_type* only = nullptr;
  for (const auto& split : by_split) {
    if (split_in(split.first) != "train") continue;
    if (only != nullptr) return nullptr;
    only = &split;
  }
  return only;
}

std::vector<fs::path> files_of_split(const fs::path& folder, const std::string& split) {
  FilesBySplit by_split;
  for (const fs::path& file : Walk(folder).files(kMostLevels))
    if (is_rows_file(file)) by_split[split_of(file)].push_back(folder / file);
  if (by_split.empty()) {
    fail(folder,
         "the folder holds no file of rows (.jsonl, .json, .csv, .tsv, .parquet, .arrow, .feather, also .gz "
         "or .zst)");
  }
  if (const auto* found = find_split(by_split, split)) {
    std::set<fs::path> seen;
    std::vector<fs::path> files = without_repeats(found->second, seen);
    if (!found->first.empty()) warn_of_left_out(folder, found->first, without_repeats(by_split[""], seen));
    warn_of_folders(folder, files);
    return files;
  }
  std::vector<std::string> names;
  for (const auto& [name, files] : by_split)
    if (!name.empty()) names.push_back(name);
  fail(folder, "expected files of the split '" + escape_control(split.empty() ? "train" : split) +
                   "', found " +
                   (names.empty() ? "none with a split in their names" : "those of " + join(names, ", ")) +
                   "; set data.train.split (of validation rows data.validation.split), or name the files by "
                   "a pattern");
}

}  // namespace

std::vector<fs::path> find_source_files(const fs::path& path, const std::string& split) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    std::vector<fs::path> files = existing(files_of_split(path, split));
    refuse_packed_copies(files);
    return files;
  }
  if (!split.empty()) {
    fail(path, "the split '" + escape_control(split) +
                   "' chooses among the files of a folder, and this is none; leave out data.train.split (of "
                   "validation rows data.validation.split)");
  }
  if (fs::exists(path, ignored) || !is_pattern(path)) return {path};
  std::vector<fs::path> files = matching_files(path);
  if (files.empty()) fail(path, "no file matches this pattern");
  refuse_packed_copies(files);
  return existing(std::move(files));
}

void require_source_there(const fs::path& path, const std::string& setting) {
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() != fs::file_type::not_found || is_pattern(path)) return;
  throw Error("[" + setting + "] expected a file, a folder or a pattern of files, got '" +
              escape_control(path.string()) + "', which isn't there");
}

bool source_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) || (is_pattern(path) && !matching_files(path).empty());
}

}  // namespace lorikeet::data
