#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::peft {

/// What people name as a target: "model.layers.3.mlp.up_proj" -> "up_proj".
std::string last_part(std::string_view module);

/// LoRA (Hu et al. 2021): y = W x + scale * B A dropout(x), with A and B trained and W frozen.
struct LoraConfig {
  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool use_rslora = false;  ///< scale alpha / sqrt(rank) (Kalajdzievski 2023) instead of alpha / rank
  /// Names as PEFT matches them (a module's name, or its end after a dot), or the one entry "all-linear":
  /// every projection but the head.
  std::vector<std::string> target_modules = {"all-linear"};

  double scale() const;
  bool targets_all_linear() const { return target_modules.size() == 1 && target_modules[0] == "all-linear"; }
  /// True if a projection with this checkpoint name gets an adapter. `is_head` marks lm_head.
  bool matches(const std::string& name, bool is_head) const;
};

}  // namespace lorikeet::peft
