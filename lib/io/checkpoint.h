#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace lorikeet::io {

/// The weights of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json
/// names. Links are followed, so that a snapshot of the hub's cache is a folder like any other.
class Checkpoint {
 public:
  /// Maps and checks all files. Throws one Error that lists what is wrong: absent shards, tensors that the
  /// index places in a shard that lacks them or that stand in two shards, file names with a path in them. A
  /// folder that doesn't exist but looks like a hub id, or that holds only weights in another format, gets an
  /// error that says what to run.
  static Checkpoint open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }

  /// By name, as they stand in the files.
  const std::map<std::string, const TensorView*, std::less<>>& tensors() const { return by_name_; }
  /// A tensor of the files or a part of one that has a name of its own; nullptr when there is none of that
  /// name.
  const TensorView* find(std::string_view name) const;

  /// Gives a part of a tensor, which says so (TensorView::part), a name by which it is found as if it stood
  /// in a file. A tensor of that name goes before.
  void name_part(TensorView part);
  const std::map<std::string, TensorView, std::less<>>& parts() const { return parts_; }

  void drop_pages(const TensorView& tensor) const { files_.at(tensor.file).drop_pages(tensor); }

  /// Bytes of all tensors.
  std::uint64_t total_bytes() const;

  /// sha256 over names, dtypes and shapes and a sample of each tensor's bytes: tells bases apart without
  /// reading them whole, and doesn't depend on how they are cut into files. This is version 1 of a base's
  /// fingerprint, which older runs recorded: it never changes. All bytes count in models::base_fingerprint.
  std::string fingerprint() const;

 private:
  Checkpoint() = default;
  void add_file(const std::filesystem::path& path);

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const TensorView*, std::less<>> by_name_;
  std::map<std::string, TensorView, std::less<>> parts_;
};

/// True for "org/name" as the Hugging Face hub forms ids.
bool looks_like_hub_id(std::string_view text);

/// Throws the Error for a model folder that isn't there, isn't a folder, or is a hub id; returns if it is a
/// folder.
void require_model_folder(const std::filesystem::path& folder);

}  // namespace lorikeet::io
