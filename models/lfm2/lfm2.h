#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// LFM2 (Liquid AI): gated short convolutions in place of attention in most layers, RMS norms over each head
/// of q and k in the others. Source: transformers' modeling_lfm2.py. Throws Error for settings that aren't
/// supported.
nn::CausalLMSpec lfm2_spec(const JsonView& config);

/// The same with experts in place of the MLPs of all but the first layers, chosen and weighed by the sigmoids
/// of the router's logits, with a bias for the choice. Source: modeling_lfm2_moe.py.
nn::CausalLMSpec lfm2_moe_spec(const JsonView& config);

}  // namespace lorikeet::models
