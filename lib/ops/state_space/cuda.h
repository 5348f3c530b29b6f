#pragma once

#include "ops/state_space/state_space.h"

// The state space by our CUDA kernels, for state_space.cpp; their scratch grows with the batch's tokens
// (cuda.cpp). They need sequences.cu_seqlens_device on the GPU, and never wait for it.
namespace lorikeet::ops::cuda {

/// Whether the kernels take such rows: elements of has_cuda_elements, state_dim and head_dim multiples of 8,
/// state_dim up to 256.
bool state_space_fits(const at::Tensor& xbc, const StateSpaceLayout& layout);

/// ops::state_space of such rows, in two launches. With states of several sequences one is added that packs
/// them, without a token none is made but for states.
at::Tensor state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                       const StateSpaceLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states);

/// ops::state_space_backward of such rows, in five launches.
at::Tensor state_space_backward(const at::Tensor& dout, const at::Tensor& xbc, const at::Tensor& dt,
                                const StateSpaceNumbers& numbers, const StateSpaceLayout& layout,
                                const Sequences& sequences, const at::Tensor& ddt);

}  // namespace lorikeet::ops::cuda
