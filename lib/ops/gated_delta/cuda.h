#pragma once

#include "ops/gated_delta/gated_delta.h"

// The gated delta rule by our CUDA kernels, for gated_delta.cpp; their scratch grows with the batch's tokens
// (cuda.cpp). They need sequences.cu_seqlens_device on the GPU, and never wait for it.
namespace lorikeet::ops::cuda {

/// Whether the kernels take such rows: elements of has_cuda_elements, key_dim and value_dim multiples of 8,
/// key_dim up to 128.
bool gated_delta_fits(const at::Tensor& qkv, const DeltaLayout& layout);

/// ops::gated_delta of such rows, in two launches. With states of several sequences one is added that packs
/// them, without a token none is made but for states.
at::Tensor gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                       const DeltaLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states);

/// ops::gated_delta_backward of such rows, in four launches.
DeltaGradients gated_delta_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& gates,
                                    const DeltaDecay& decay, const DeltaLayout& layout,
                                    const Sequences& sequences);

}  // namespace lorikeet::ops::cuda
