#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "io/checkpoint.h"
#include "nn/causal_lm.h"
#include "peft/weight_updates.h"

namespace lorikeet::recipes {

/// The weights of a checkpoint with what an adapter makes of them. Where the head shares the embedding's
/// table and the adapter changes only one of the two, or each in its own way, the merged checkpoint has a
/// table for each, as PEFT's merge has.
class MergedCheckpoint {
 public:
  /// `updates` by the model's names of the weights. Throws Error for one that the checkpoint doesn't have.
  MergedCheckpoint(const io::Checkpoint& base, const nn::CausalLMSpec& spec,
                   std::map<std::string, peft::WeightUpdate> updates);

  /// Tensors that differ from the base's, or are new.
  std::size_t changed() const { return updates_.size(); }

  /// Writes the base's files, shard by shard, into an existing folder, and the index where it has one. Throws
  /// Error for values that would be NaN or infinite in the base's dtype.
  void write_weights(const std::filesystem::path& folder) const;

  /// Makes the copy of the base's config.json in `folder` say what of it changed: rows of the tables, and
  /// whether one is shared.
  void write_config(const std::filesystem::path& folder) const;

 private:
  // Of a shared table, by the names in the file: whether it stays shared.
  void part_or_share(const std::string& embedding, const std::string& head);
  void write_file(const io::SafetensorsFile& file, const std::filesystem::path& target) const;
  void write_index(const std::filesystem::path& folder) const;

  const io::Checkpoint& base_;
  std::map<std::string, peft::WeightUpdate> updates_;  // by the name in the file
  std::map<std::string, std::string> copies_;          // new tensors -> the base's that they begin as
  std::int64_t rows_ = 0;                              // of a table that has more than the base's
};

}  // namespace lorikeet::recipes
