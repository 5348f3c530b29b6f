#pragma once

#include <optional>

#include "base/json.h"
#include "precision/quantization.h"

namespace lorikeet::models {

/// How config.json's `quantization_config` says that linear modules are quantised in the checkpoint; nullopt
/// where it says nothing. Known are the methods bitsandbytes (4 bits), fp8 (transformers' finegrained fp8),
/// fbgemm_fp8, compressed-tensors (fp8 with a scale for each matrix, row or block) and mxfp4, which is that
/// of experts alone. Throws Error for all others.
std::optional<precision::Quantization> quantization_in_config(const JsonView& config);

}  // namespace lorikeet::models
