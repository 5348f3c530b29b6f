#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/attention.h"

namespace lorikeet::ops::cuda {

/// ATen's memory-efficient attention over packed sequences, for what choose_attention_kernel says that it
/// takes. Needs sequences.cu_seqlens_device on the GPU, and a token at least. Returns [T, H D]; fills
/// `statistics` unless it is null, with lse as [H, T].
at::Tensor efficient_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                             const AttentionOptions& options, AttentionStatistics* statistics);

/// The packed gradient [T, width] of qkv, from dout [T, H D] and what forward gave.
at::Tensor efficient_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                              const AttentionStatistics& statistics, const HeadLayout& layout,
                              const Sequences& sequences, const AttentionOptions& options);

}  // namespace lorikeet::ops::cuda
