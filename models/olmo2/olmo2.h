#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// OLMo 2: Llama's blocks with norms behind them alone, and RMS norms over all heads of q and of k.
nn::CausalLMSpec olmo2_spec(const JsonView& config);

/// OLMo 3: OLMo 2's blocks with windows in three of four layers. `rope_scaling` is that of the layers without
/// a window; those with one have plain angles.
nn::CausalLMSpec olmo3_spec(const JsonView& config);

}  // namespace lorikeet::models
