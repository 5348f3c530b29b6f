#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/tensor_digest.h"
#include "nn/architecture.h"

namespace lorikeet::models {

/// The digests of the weights that a model takes from a checkpoint, by their names there: of all their bytes,
/// or of the part that one process read.
using WeightDigests = std::map<std::string, io::TensorDigest>;

/// Version of `base_fingerprint`'s function; see base/fingerprint.h. Version 1 is
/// io::Checkpoint::fingerprint, which samples the weights and leaves config.json out.
inline constexpr int kBaseFingerprintVersion = 2;

/// sha256 over all that decides a base's numbers: its architecture, and every byte of the weights that it
/// uses. Depends neither on how config.json spells it nor on how the weights are cut into files.
std::string base_fingerprint(const nn::Architecture& architecture, const WeightDigests& weights);

/// Digests in the order of their names, as text for other processes, which have the same names.
std::string digests_text(const WeightDigests& weights);

/// The whole weights' digests from the `digests_text` of all ranks, where each `degree` neighbours have read
/// a copy together; `names` has the names. Throws Error naming a tensor and two ranks where copies differ.
WeightDigests combine_digests(const WeightDigests& names, const std::vector<std::string>& texts, int degree);

/// Names of the tensors that only one of both has, or that differ.
std::vector<std::string> changed_tensors(const WeightDigests& before, const WeightDigests& now);

}  // namespace lorikeet::models
