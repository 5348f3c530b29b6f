#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "models/fingerprint.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Where a model and a checkpoint differ.
struct LoadReport {
  std::vector<std::string> missing;     ///< the model needs them, the checkpoint lacks them
  std::vector<std::string> unexpected;  ///< the checkpoint holds them, the model has no use for them; without
                                        ///< what belongs to other parts (io::CheckpointNames)
  std::vector<std::string> mismatched;  ///< "name: expected [2, 3], got [3, 2]"

  bool complete() const { return missing.empty() && mismatched.empty(); }
};

/// The tensor that holds the model's weight `name`, by that name or by one of another prefix; nullptr where
/// there is none.
const io::TensorView* find_weight(const io::Checkpoint& checkpoint, const io::CheckpointNames& names,
                                  const std::string& name);

/// Holds a model's frozen weights against a checkpoint's headers, before anything is allocated: sizes that a
/// damaged config.json made up never become memory. Where the head is tied and the file has a table for it,
/// the two tables' numbers are compared.
LoadReport compare_weights(const nn::CausalLM& model, const io::Checkpoint& checkpoint);

/// Throws Error listing what is missing or mismatched; warns of what is unexpected.
void require_complete(const LoadReport& report, const io::Checkpoint& checkpoint);

/// Fills all frozen weights that an allocated model holds (its part, where it is split) from a mapped
/// checkpoint that is complete for it, converted to the dtype in which they are stored here, and from module
/// order to group order (nn::RowOrder). Pages of the file are given back as soon as they were converted, so
/// that the peak of memory is the weights and one piece of a tensor. Throws Error at the first tensor that
/// doesn't fit.
void load_weights(nn::CausalLM& model, const io::Checkpoint& checkpoint);

/// The same, and hashes what it reads while it is in memory: each byte of the file is read once, but for
/// blocks (io::TensorDigest) that reach beyond what this process holds. Where the weights are split, `shard`
/// is this process's part; blocks that begin in it are hashed here, and the parts' digests add up to the
/// whole's.
WeightDigests load_and_digest_weights(nn::CausalLM& model, const io::Checkpoint& checkpoint,
                                      const nn::WeightShard& shard = {});

}  // namespace lorikeet::models
