#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/regex.h"

namespace lorikeet::models {

/// The modules that a quantised checkpoint leaves as numbers, by config.json's `quantization_config`:
/// bitsandbytes' llm_int8_skip_modules, modules_to_not_convert of fp8 and fbgemm_fp8, ignore of
/// compressed-tensors; with mxfp4 all that aren't experts.
class PlainModules {
 public:
  /// Throws Error, naming the key, for what isn't a list of names and regular expressions.
  explicit PlainModules(const JsonView& config);

  /// Whether the checkpoint's module of this name ("model.layers.1.mlp.up_proj") is among them. Names of the
  /// first two lists count as in transformers 5.23 (should_convert_module): as a regular expression that
  /// matches from the start up to a dot or the end, or as the end of the name. compressed-tensors' are whole
  /// names, or behind "re:" expressions that match from the start.
  bool contains(const std::string& module) const;

 private:
  bool all_but_experts_ = false;
  std::vector<std::string> endings_, names_;
  std::vector<text::Regex> patterns_;
};

}  // namespace lorikeet::models
