#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lorikeet::io {

/// Where a Hugging Face folder has its weights: in one file, or in shards that an index names.
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kShardIndexFile = "model.safetensors.index.json";

/// What an index says: which file holds which tensor.
struct ShardIndex {
  std::map<std::string, std::string> shard_of;  ///< tensor -> bare file name

  /// Each file once, sorted.
  std::vector<std::string> shards() const;
};

/// Parses an index. File names must be bare ("model-00001-of-00004.safetensors"): nothing in an index may
/// lead out of the checkpoint's folder. Throws Error naming `where` and the tensor.
ShardIndex parse_shard_index(std::string_view json, const std::string& where);

/// The same from a file, of at most 64 MiB.
ShardIndex read_shard_index(const std::filesystem::path& path);

}  // namespace lorikeet::io
