#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/attention.h"

namespace lorikeet::ops::cuda {

/// Whether FlashAttention takes this: fp16 or bf16 on a GPU, no soft cap, head_dim at most 256 and a multiple
/// of 8.
bool flash_takes(const at::Tensor& qkv, const HeadLayout& layout, const AttentionOptions& options);

struct FlashResult {
  at::Tensor out;  ///< [T, H, D]
  at::Tensor lse, rng_state, unused;
};

/// Variable-length FlashAttention through ATen. Needs sequences.cu_seqlens_device on the GPU.
FlashResult flash_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                          const AttentionOptions& options);

/// The packed gradient [T, width] of qkv.
at::Tensor flash_backward(const at::Tensor& dout, const at::Tensor& qkv, const FlashResult& result,
                          const HeadLayout& layout, const Sequences& sequences,
                          const AttentionOptions& options);

}  // namespace lorikeet::ops::cuda
