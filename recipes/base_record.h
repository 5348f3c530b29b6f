#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "models/fingerprint.h"

namespace lorikeet::recipes {

// What run.json records of the base checkpoint beside its fingerprints, so that a refusal can name what has
// changed. Runs of older versions of this program recorded none of it.

Json architecture_json(const nn::Architecture& architecture);
Json tensors_json(const models::WeightDigests& tensors);

/// "name: a there, b now" for everything in which the recorded architecture is another one.
std::string architecture_difference(const JsonView& recorded, const nn::Architecture& now);

/// "2 of 57 tensors, a (model.safetensors), b (model.safetensors)": the weights that aren't those recorded,
/// with their files in `base`.
std::string tensors_difference(const JsonView& recorded, const models::WeightDigests& now,
                               const std::filesystem::path& base);

}  // namespace lorikeet::recipes
