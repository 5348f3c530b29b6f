#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/checkpoint_names.h"

namespace lorikeet::models {

/// Gives the parts of tensors that hold a matrix of every expert (`names.expert_stacks`) the names that they
/// would have by themselves, so that they are found like other tensors: of numbers
///   PREFIX.experts.TENSOR          [experts, out, in], or [experts, in, out]
/// of mxfp4 (OCP Microscaling Formats 1.0), blocks of 32 numbers of a row,
///   PREFIX.experts.TENSOR_blocks   uint8 [experts, out, in / 32, 16]
///   PREFIX.experts.TENSOR_scales   uint8 [experts, out, in / 32]
/// as PREFIX.experts.NUMBER.MODULE.weight and MODULE.weight_scales, and of biases
///   PREFIX.experts.TENSOR_bias     [experts, out]
/// as PREFIX.experts.NUMBER.MODULE.bias. A stack with a name of its own in files (`in_file`) is one of
/// numbers. Throws Error, which names the tensor, for other shapes.
void name_expert_parts(io::Checkpoint& checkpoint, const io::CheckpointNames& names);

/// A matrix [rows, columns] of an expert in the tensor of all.
struct StackedMatrix {
  std::string name;  ///< "PREFIX.experts.NUMBER.MODULE.weight"
  std::int64_t rows, columns;
  std::int64_t first, row_step, element_step;  ///< where its elements lie, in elements
};

/// A stack that a checkpoint has in mxfp4, as transformers writes it unquantised: PREFIX.experts.TENSOR of
/// `shape`.
struct StackNumbers {
  std::string name;
  std::string blocks, scales;  ///< its tensors in the checkpoint
  std::vector<std::int64_t> shape;
  std::vector<StackedMatrix> matrices;
};

/// All of those, of a checkpoint whose parts have names (name_expert_parts).
std::vector<StackNumbers> mxfp4_stacks(const io::Checkpoint& checkpoint, const io::CheckpointNames& names);

/// The same tensor with its elements after each other: the view itself, or where they lie apart a copy, which
/// `copy` then holds.
io::TensorView dense_view(const io::TensorView& view, at::Tensor* copy);

}  // namespace lorikeet::models
