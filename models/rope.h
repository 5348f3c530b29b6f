#pragma once

#include <cstdint>

#include "base/json.h"
#include "nn/rotary_spec.h"

namespace lorikeet::models {

/// The rotary settings of a config.json in either layout, for heads of `head_dim`:
///   transformers 4: `rope_theta`, `rope_scaling` (null or an object with `rope_type` or `type`)
///   transformers 5: `rope_parameters` (an object with `rope_theta`, `rope_type` and the type's own numbers)
/// Supports default, linear and llama3 scaling. A file with neither layout, or with both and different
/// numbers, is an error: a reader of one layout given the other would silently train with the wrong angles.
nn::RotarySpec read_rope(const JsonView& config, std::int64_t head_dim);

}  // namespace lorikeet::models
