#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lorikeet::data {

/// The files of rows that `path` names, in the order of their names: a file; the data files of a folder and
/// of those below it; or a pattern of names (* and ? within a name, [abc], ** for any folders). Of a folder,
/// files that belong to a split are known as the Hub does it: by the name of a split's parts
/// ("train_sft-00000-of-00003.parquet" is of train_sft), or by a word of their name or folder: train,
/// training; validation, valid, val, dev; test, testing, eval, evaluation. `split` chooses; where it is empty
/// and files belong to splits, those of train are taken, or of the only split that is named after it. A
/// warning names what the choice leaves out, folders that are read together, and folders that may not be
/// read. Hidden files and the Hub's own JSON files (dataset_info.json, state.json, ...) are not rows. Throws
/// Error when there is no such path, no data file in it or no such split, for a link among the files that
/// leads nowhere, and for a file that stands beside its packed form.
std::vector<std::filesystem::path> find_source_files(const std::filesystem::path& path,
                                                     const std::string& split);

/// Throws Error naming `setting` where `path` isn't there and is no pattern.
void require_source_there(const std::filesystem::path& path, const std::string& setting);

/// True if `path` is a file, a folder or a pattern that a file, or a link to none, matches.
bool source_exists(const std::filesystem::path& path);

}  // namespace lorikeet::data
