#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/safetensors_writer.h"
#include "models/expert_stacks.h"
#include "nn/causal_lm.h"
#include "peft/weight_updates.h"
#include "precision/quantization.h"

namespace lorikeet::recipes {

/// The weights of a checkpoint with what an adapter makes of them. Weights that are quantised there become
/// plain numbers, changed by the adapter or not, in the dtype of the checkpoint's embedding: the sum would
/// not fit into the 4 bits of the one. Stacks of experts in mxfp4 get the form that transformers writes.
/// Where the head shares the embedding's table and the adapter changes only one of the two, or each in its
/// own way, the merged checkpoint has a table for each, as PEFT's merge has.
class MergedCheckpoint {
 public:
  /// `updates` by the model's names of the weights, `quantization` that of the base's linear weights, if they
  /// have one. Throws Error for an update of a weight that the checkpoint doesn't have.
  MergedCheckpoint(const io::Checkpoint& base, const nn::CausalLMSpec& spec,
                   std::map<std::string, peft::WeightUpdate> updates,
                   const std::optional<precision::Quantization>& quantization = std::nullopt);

  /// Tensors that differ from the base's, or are new.
  std::size_t changed() const { return updates_.size(); }

  /// Of all tensors that write_weights writes.
  std::uint64_t bytes() const;

  /// Writes the base's files, shard by shard, into an existing folder, and the index where it has one. Throws
  /// Error for values that would be NaN or infinite in the base's dtype, and (kInterrupted) once an
  /// InterruptGuard was asked to end.
  void write_weights(const std::filesystem::path& folder) const;

  /// Makes the copy of the base's config.json in `folder` say what of it changed: rows of the tables, whether
  /// one is shared, and that nothing is quantised.
  void write_config(const std::filesystem::path& folder) const;

 private:
  // Of a shared table, by the names in the file: whether it stays shared.
  void part_or_share(const std::string& embedding, const std::string& head);
  // What a tensor of the merged file begins as; nullptr where that isn't of this file.
  const io::TensorView* source(const io::SafetensorsFile& file, const std::string& name) const;
  // The tensors of the merged file.
  std::vector<io::TensorSpec> specs(const io::SafetensorsFile& file) const;
  void write_file(const io::SafetensorsFile& file, const std::filesystem::path& target) const;
  // The bytes of a tensor with its update, if it has one.
  at::Tensor merged(const io::TensorView& view, const io::TensorSpec& spec) const;
  // The numbers of a stack with the updates of its matrices.
  at::Tensor merged_stack(const models::StackNumbers& stack) const;
  void write_index(const std::filesystem::path& folder) const;

  const io::Checkpoint& base_;
  std::map<std::string, peft::WeightUpdate> updates_;  // by the name in the file
  // Of tensors that hold a matrix of every expert, those that have updates.
  std::map<std::string, std::vector<const io::TensorView*>> changed_parts_;
  std::map<std::string, models::StackNumbers>
      stacks_;                                 // of mxfp4 that are written as numbers, by their names
  std::map<std::string, std::string> copies_;  // new tensors -> the base's that they begin as
  std::int64_t rows_ = 0;                      // of a table that has more than the base's
  std::optional<precision::Quantization> quantization_;
  std::set<std::string> companions_;  // of quantised tensors: they are not written
  DType numbers_{};                   // what quantised tensors become
};

}  // namespace lorikeet::recipes
