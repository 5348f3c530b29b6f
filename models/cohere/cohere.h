#pragma once

#include "base/json.h"
#include "nn/causal_lm.h"

namespace lorikeet::models {

/// Command R and Aya Expanse (`cohere`): parallel blocks behind one layer norm without bias, a rotation of
/// neighbours, scaled logits, a shared table. Norms of q and k (Command R+) are refused.
nn::CausalLMSpec cohere_spec(const JsonView& config);

/// Command R7B and Command A (`cohere2`): the same with windows in most layers; the others have no rotary.
nn::CausalLMSpec cohere2_spec(const JsonView& config);

}  // namespace lorikeet::models
