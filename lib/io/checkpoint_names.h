#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lorikeet::io {

/// How the names of a checkpoint's tensors differ from the model's, which are those of PEFT's adapters. Empty
/// for a checkpoint that holds nothing but a language model under its own names.
struct CheckpointNames {
  struct Prefix {
    std::string model, file;
  };
  /// A weight whose name begins with `model` may stand in the file under a name that begins with `file`.
  std::vector<Prefix> prefixes;
  /// A tensor PREFIX.experts.TENSOR that holds a matrix of every expert of a layer: the weights that the
  /// model names PREFIX.experts.NUMBER.MODULE.weight.
  struct ExpertStack {
    std::string tensor;                ///< "gate_up_proj"
    std::vector<std::string> modules;  ///< whose rows it has: {"gate_proj", "up_proj"}
    bool interleaved = false;          ///< a row of each module in turn, else all rows of a module together
    bool transposed = false;           ///< [experts, in, out], else [experts, out, in]
    std::int64_t in_features = 0;      ///< > 0: a tensor whose last extent is that isn't transposed
    /// "block_sparse_moe.input_linear.weight": what files call the tensor behind the layer's prefix, where it
    /// isn't PREFIX.experts.TENSOR. The model's PREFIX is then that up to the first dot, the block.
    std::string in_file = {};
  };
  /// Files may have these in place of a tensor for each expert's matrix.
  std::vector<ExpertStack> expert_stacks = {};
  /// Beginnings of the names of other parts, such as a vision tower: such tensors are neither loaded nor
  /// changed.
  std::vector<std::string> other_parts;

  /// The names that files may have for the model's tensor `name`: its own first. PEFT's adapters that were
  /// made with older versions of transformers have the checkpoint's too.
  std::vector<std::string> in_files(const std::string& name) const;
  /// The same of a module, whose name is a tensor's without its last part.
  std::vector<std::string> modules_in_files(const std::string& module) const;
  /// The name for the model's tensor `name` in a file that lacks it and has the model's `other` under
  /// `other_in_file`: of the same spelling, and the files' own where `other` is spelled alike in all.
  std::string spelled_like(const std::string& name, const std::string& other,
                           const std::string& other_in_file) const;
  /// The model's name of a tensor that a file has under `in_file`.
  std::string model_name(const std::string& in_file) const;
};

}  // namespace lorikeet::io
