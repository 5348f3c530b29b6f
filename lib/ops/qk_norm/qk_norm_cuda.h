#pragma once

#include <cstdint>

#include "ops/cuda_element.h"
#include "ops/head_layout.h"

// QK norm and rotary on a GPU (qk_norm.h) for RMS norms over each head and rotation of whole heads, without
// libtorch. All pointers are device memory, aligned to 16 bytes.
namespace lorikeet::ops {

struct QkNormOnDevice {
  std::int64_t rows;
  HeadLayout layout;
  const void* q_weight;  ///< [head_dim], frozen: fp32 where `is_fp32`, else of the rows' element type
  const void* k_weight;
  bool is_fp32;
  float offset;      ///< added to both weights
  float eps;         ///< backward doesn't read it
  const float* cos;  ///< [rows, head_dim / 2]
  const float* sin;
};

/// Whether the kernels take heads of this width: halves of whole accesses of 16 bytes, 32 at most.
constexpr bool qk_norm_kernel_fits(CudaElement element, std::int64_t head_dim) {
  const std::int64_t access = element == CudaElement::kF32 ? 4 : 8;
  return head_dim > 0 && head_dim % (2 * access) == 0 && head_dim <= 2 * 32 * access;
}

/// One launch each; nothing where there are no elements. qkv, out, dqkv: [rows, layout.width()]; q_rstd:
/// [rows, heads], k_rstd: [rows, kv_heads], which forward writes unless they are null. Backward's
/// `gradients`, whose rows are aligned to 16 bytes, may be parts of dqkv. `stream` is a cudaStream_t. They
/// throw Error when the launch fails, and always in a build without CUDA.
void launch_norm_and_rotate(CudaElement element, const QkNormOnDevice& in, const void* qkv, void* out,
                            float* q_rstd, float* k_rstd, void* stream);
void launch_norm_and_rotate_backward(CudaElement element, const QkNormOnDevice& in,
                                     const HeadsOnDevice& gradients, const void* qkv, const float* q_rstd,
                                     const float* k_rstd, void* dqkv, void* stream);

}  // namespace lorikeet::ops
