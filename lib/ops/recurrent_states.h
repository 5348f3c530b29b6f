#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

// What recurrences over packed sequences (gated_delta.h, state_space.h) ask of their sequences, and the
// states that decoding gives them and gets back. sizes: a sequence's state.
namespace lorikeet::ops {

/// Throws Error from `op` unless the sequences follow each other from the first of `rows` to the last.
void check_follow(const char* op, const at::Tensor& rows, const Sequences& sequences);

/// Throws Error from `op` unless each sequence has a state, of these sizes or undefined; `expected` names
/// them.
void check_states(const char* op, const std::vector<at::Tensor>& states, at::IntArrayRef sizes,
                  const char* expected, const Sequences& sequences);

/// For kernels on a CPU: the states before the sequences, fp32 and dense or undefined; in their place come
/// new ones to be written, or, of a sequence without tokens, the same, 0 where there was none.
std::vector<at::Tensor> renew_states(std::vector<at::Tensor>& states,
                                     const std::vector<std::int64_t>& lengths, at::IntArrayRef sizes,
                                     const at::Tensor& like);

/// For kernels on a GPU: the states before the sequences as one tensor [sequences, sizes], fp32, aligned;
/// undefined where all are 0.
at::Tensor packed_states(const std::vector<at::Tensor>& states, at::IntArrayRef sizes,
                         const at::Tensor& like);

}  // namespace lorikeet::ops
