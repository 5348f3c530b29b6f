#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/causal_lm.h"

namespace lorikeet::test {

/// Something that a model family has beside Llama's plain form, and how a spec looks without it.
struct Feature {
  std::string name;
  std::function<bool(const nn::CausalLMSpec&)> is_in;
  std::function<void(nn::CausalLMSpec&)> take_out;
};

/// Every feature that a spec can express and a family uses.
const std::vector<Feature>& features();

}  // namespace lorikeet::test
