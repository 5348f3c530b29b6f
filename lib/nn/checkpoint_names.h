#pragma once

#include <string>
#include <vector>

namespace lorikeet::nn {

/// How the names of a checkpoint's tensors differ from the model's, which are those of PEFT's adapters. Empty
/// for a checkpoint that holds nothing but a language model under its own names.
struct CheckpointNames {
  struct Prefix {
    std::string model, file;
  };
  /// A weight whose name begins with `model` may stand in the file under a name that begins with `file`.
  std::vector<Prefix> prefixes;
  /// Beginnings of the names of other parts, such as a vision tower: such tensors are neither loaded nor
  /// changed.
  std::vector<std::string> other_parts;
};

}  // namespace lorikeet::nn
