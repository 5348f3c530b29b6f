#pragma once

#include <string>
#include <vector>

#include "nn/causal_lm.h"

namespace lorikeet::test {

/// What the golden config.json `variant` ("family/variant/config.json") says with members replaced, or taken
/// away by the string "absent". `changes` is a JSON object; its key "text_config.KEY" is a member of the
/// nested object.
nn::CausalLMSpec spec_of(const std::string& variant, const std::string& changes = "{}");

struct Refused {
  std::string variant;  ///< with the file's name
  std::string changes;
  std::string key;  ///< in the error, with more of its text
};

/// Checks that each is refused by an error that names the file and the key.
void check_refused(const std::vector<Refused>& cases);

}  // namespace lorikeet::test
