#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::convert {

struct ConvertOptions {
  /// How many processes the config was run on: torchtune's and axolotl's batches are those of one of them.
  std::int64_t devices = 1;
};

struct Converted {
  std::string yaml;                ///< a config of ours, with a comment for each key that has no counterpart
  std::vector<std::string> notes;  ///< what differs in numbers, one line each; they stand in `yaml` too
};

/// Turns a torchtune LoRA recipe's YAML, one with the arguments of litgpt's finetune_lora, or axolotl's into
/// a config of ours; which of them it is shows in its keys. `name` is the file's in errors.
///
/// A key without counterpart that doesn't change what is computed becomes a comment. Throws one Error that
/// lists everything that can't be had here and would change the result: other recipes than LoRA on text (DPO,
/// distillation, QAT, vision), other optimizers, unknown keys. What is returned loads as a config.
Converted convert_config(std::string_view yaml, const std::string& name, const ConvertOptions& options = {});

}  // namespace lorikeet::convert
