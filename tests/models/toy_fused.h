#pragma once

#include "models/toy_family.h"

namespace lorikeet::test {

/// The toy model with fused modules "qkv" and "w13", in each layer of another order of rows:
///   layer 0: qkv by key-value heads (as Falcon-40B has it), w13 row by row, bias on qkv
///   layer 1: qkv part by part (Phi-3), w13 in four groups, bias on w13
///   layer 2: qkv by key-value heads, w13 part by part
nn::CausalLMSpec fused_toy_spec();

/// The same modules, all of them part by part: what a reader computes that ignores the order of rows.
nn::CausalLMSpec uninterleaved_toy_spec();

/// Rows in module order of a module that repeats [part 0 | part 1 | ...] `groups` times, from its parts: by
/// reshaping, so that nothing is shared with nn::RowOrder. `split_rows` is the inverse for these sizes.
at::Tensor fuse_rows(const std::vector<at::Tensor>& parts, std::int64_t groups);
std::vector<at::Tensor> split_rows(const at::Tensor& fused, const std::vector<std::int64_t>& sizes,
                                   std::int64_t groups);

/// Tensors of the toy model as a checkpoint of `spec`, which is the same model with fused modules, has them.
State fuse(const State& separate, const nn::CausalLMSpec& spec);

}  // namespace lorikeet::test
