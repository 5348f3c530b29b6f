#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// EXAONE 4.0: Llama's blocks with norms behind them alone, and RMS norms over each head of q and k. Where
/// the file has a window, the layers without one have no rotary.
nn::CausalLMSpec exaone4_spec(const JsonView& config);

}  // namespace lorikeet::models
