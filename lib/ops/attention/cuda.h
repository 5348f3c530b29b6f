#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"

namespace lorikeet::ops::cuda {

// FlashAttention through ATen, for what choose_attention_kernel says that it takes (kernel_choice.h).
struct FlashResult {
  at::Tensor out;  ///< [T, H, D]
  at::Tensor lse, rng_state, unused;
};

/// Over packed sequences. Needs sequences.cu_seqlens_device on the GPU.
FlashResult flash_forward(const at::Tensor& qkv, const HeadLayout& layout, const Sequences& sequences,
                          const AttentionOptions& options);

/// The packed gradient [T, width] of qkv.
at::Tensor flash_backward(const at::Tensor& dout, const at::Tensor& qkv, const FlashResult& result,
                          const HeadLayout& layout, const Sequences& sequences,
                          const AttentionOptions& options);

/// As ops::attention_cached, into out [Tq, H D]: one call for each sequence.
void flash_cached(const at::Tensor& q, const std::vector<at::Tensor>& k, const std::vector<at::Tensor>& v,
                  const std::vector<std::int32_t>& cu_q, const AttentionOptions& options, at::Tensor& out);

}  // namespace lorikeet::ops::cuda
