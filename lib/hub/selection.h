#pragma once

#include <string>
#include <vector>

#include "hub/file_list.h"
#include "hub/repository.h"

namespace lorikeet::hub {

struct Selection {
  std::vector<RemoteFile> files;
  std::vector<std::string> refused;  ///< what `include` matches but is never downloaded: pickles and code
};

/// True for a file that can run code when it is opened the usual way: pickles and what may hold one
/// (pytorch_model.bin, .pt, .pkl, .npy, ...), scripts and libraries.
bool may_run_code(const std::string& path);

/// The files to download.
///
/// Without `include`, of a model: at the repository's root, *.json, *.jinja, *.txt, *.model, and the weights
/// (model.safetensors or its shards, else all *.safetensors); of a data set: data files in any folder
/// (.parquet, .arrow, .json, .jsonl, .csv, .tsv, .txt, these also with .gz or .zst). With `include`: what
/// matches one of the globs, as in huggingface_hub's allow_patterns (`*` also matches '/', a folder's name
/// with a slash stands for all in it). Files that may run code are left out in either case.
///
/// Throws Error when nothing is left: no file matches, or only pickles hold the weights.
Selection select_files(const FileList& list, const Repository& repository,
                       const std::vector<std::string>& include);

}  // namespace lorikeet::hub
