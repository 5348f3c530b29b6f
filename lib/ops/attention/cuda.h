#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

// ATen's kernels for GPUs, each for what choose_attention_kernel says that it takes (kernel_choice.h). Over
// packed sequences they need sequences.cu_seqlens_device on the GPU (cuDNN's doesn't), and a token at least.
namespace lorikeet::ops::cuda {

/// FlashAttention. Returns [T, H D]; fills `statistics` unless it is null.
at::Tensor flash_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                         const AttentionOptions& options, AttentionStatistics* statistics);

/// The gradients of qkv's parts, from dout [T, H D] and what forward gave.
HeadGradients flash_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                             const AttentionStatistics& statistics, const HeadLayout& layout,
                             const Sequences& sequences, const AttentionOptions& options);

/// As ops::attention_cached, into out [Tq, H D] and, unless it is undefined, lse [H, Tq] in fp32: one call
/// for each sequence.
void flash_cached(const at::Tensor& q, const std::vector<at::Tensor>& k, const std::vector<at::Tensor>& v,
                  const std::vector<std::int32_t>& cu_q, const AttentionOptions& options, at::Tensor& out,
                  at::Tensor& lse);

/// cuDNN's attention over sequences of one length, as flash_forward and flash_backward.
at::Tensor cudnn_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                         const AttentionOptions& options, AttentionStatistics* statistics);
HeadGradients cudnn_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                             const AttentionStatistics& statistics, const HeadLayout& layout,
                             const Sequences& sequences, const AttentionOptions& options);

/// Memory-efficient attention, as flash_forward and flash_backward.
at::Tensor efficient_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                             const AttentionOptions& options, AttentionStatistics* statistics);
HeadGradients efficient_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                                 const AttentionStatistics& statistics, const HeadLayout& layout,
                                 const Sequences& sequences, const AttentionOptions& options);

/// What backward of FlashAttention and of cuDNN's attention makes in a dry run. Both sum queries' gradients,
/// and the products of outputs with their gradients, in fp32 in `sum_rows` rows, of 32 or 64 numbers of a
/// head at a time, and have keys' and values' gradients for every query head before they add those of a
/// group. Returns the gradients of qkv's parts.
HeadGradients dry_gradients(const at::Tensor& qkv, const HeadLayout& layout, std::int64_t sum_rows);

/// sequences.cu_seqlens_device. Throws Error unless it is int32 on a GPU.
const at::Tensor& ends_on_gpu(const Sequences& sequences);

}  // namespace lorikeet::ops::cuda
