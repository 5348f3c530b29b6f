#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lorikeet::apps {

/// A published checkpoint whose config.json lies beside the ready-made configs.
struct PublishedModel {
  std::string family;            ///< the configs' folder, "qwen3"
  std::string size;              ///< "8B"
  std::string repository;        ///< on the Hugging Face hub, "Qwen/Qwen3-8B": the file's `_name_or_path`
  std::filesystem::path config;  ///< the file: what Lorikeet reads of the checkpoint's config.json

  /// The name of the checkpoint's folder, as the ready-made configs have it: "Qwen3-8B".
  std::string folder() const;
};

/// All of them, sorted by family and size. Throws Error for a file that isn't what it should be.
std::vector<PublishedModel> published_models();

/// The config.json in the place of a model.path whose folder isn't there, by the folder's name; none where it
/// is there. Throws Error with the nearest names where no published model has that name.
std::optional<std::filesystem::path> published_config(const std::string& model_path);

}  // namespace lorikeet::apps
