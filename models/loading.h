#pragma once

#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// What loading found beside the tensors it filled.
struct LoadReport {
  std::vector<std::string> missing;     ///< the model needs them, the checkpoint lacks them
  std::vector<std::string> unexpected;  ///< the checkpoint holds them, the model has no use for them
  std::vector<std::string> mismatched;  ///< "name: expected [2, 3], got [3, 2]"

  bool complete() const { return missing.empty() && mismatched.empty(); }
};

/// Fills all frozen weights of an allocated model from a mapped checkpoint, converted to the dtype in which
/// they are stored here. Pages of the file are given back as soon as they were converted, so that the peak of
/// memory is the weights and one tensor.
LoadReport load_weights(nn::CausalLM& model, const io::Checkpoint& checkpoint);

/// Throws Error listing what is missing or mismatched; warns of what is unexpected.
void require_complete(const LoadReport& report, const io::Checkpoint& checkpoint);

}  // namespace lorikeet::models
