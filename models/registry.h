#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// A model family: how its config.json is recognised and turned into blocks.
struct Family {
  std::string model_type;  ///< config.json's `model_type`
  nn::CausalLMSpec (*spec)(const JsonView& config);
};

/// Every family there is: the one place that knows them all.
const std::vector<Family>& families();

/// The parsed config.json of a checkpoint folder, with Python's bare numbers as bare_floats.h says; throws
/// Error when it is absent or malformed.
Json read_config_json(const std::filesystem::path& folder);

/// The blocks of the model that `config` describes. Throws Error for an unknown family (listing the known
/// ones) and for what the family can't read.
nn::CausalLMSpec model_spec(const JsonView& config);

}  // namespace lorikeet::models
