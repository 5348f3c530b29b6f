#pragma once

#include "nn/model_shape.h"
#include "precision/policy.h"

namespace lorikeet::recipes {

/// Floating-point operations a second that this CPU's matrix products reach with a layer's widths (of at most
/// 2,048) in the policy's dtypes, forward and backward, with the threads of this process: the fastest of a
/// few tries, half a second in all.
double product_rate(const nn::ModelShape& shape, const precision::Policy& policy);

}  // namespace lorikeet::recipes
