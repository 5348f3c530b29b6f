#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// LFM2 (Liquid AI): gated short convolutions in place of attention in most layers, RMS norms over each head
/// of q and k in the others. Source: transformers' modeling_lfm2.py. Throws Error for settings that aren't
/// supported.
nn::CausalLMSpec lfm2_spec(const JsonView& config);

}  // namespace lorikeet::models
