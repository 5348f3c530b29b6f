#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// The causal convolution on a GPU (causal_conv.h), without libtorch. All pointers are device memory, rows,
// the weight and the bias aligned to 16 bytes.
namespace lorikeet::ops {

struct CausalConvOnDevice {
  std::int64_t rows, channels, sequences;
  std::int64_t taps;
  const std::int32_t* bounds;  ///< [sequences + 1]: sequence s has the rows [bounds[s], bounds[s + 1])
  const void* x;               ///< [rows, channels]
  std::int64_t x_row;          ///< elements from one row to the next
  const void* weight;  ///< [channels, taps], dense: fp32 where `is_fp32`, else of the rows' element type
  bool is_fp32;
  const void* bias;  ///< [channels], of causal_conv alone: fp32 where `bias_is_fp32`; or nullptr: zeros
  bool bias_is_fp32;
};

/// Whether the kernels take so many channels and taps: channels in whole accesses of 16 bytes, 2 to 4 taps.
constexpr bool causal_conv_kernel_fits(CudaElement element, std::int64_t channels, std::int64_t taps) {
  const std::int64_t access = element == CudaElement::kF32 ? 4 : 8;
  return channels % access == 0 && taps >= 2 && taps <= 4;
}

/// One launch each; nothing where there are no elements. before: [sequences, taps - 1, channels], dense, or
/// nullptr: zeros. y: [rows, channels], dense. `stream` is a cudaStream_t. They throw Error when the launch
/// fails, and always in a build without CUDA.
void launch_causal_conv(CudaElement element, const CausalConvOnDevice& in, const void* before, void* y,
                        void* stream);
/// dy: dense; dx: rows `dx_row` elements apart.
void launch_causal_conv_backward(CudaElement element, const CausalConvOnDevice& in, const void* dy, void* dx,
                                 std::int64_t dx_row, void* stream);

}  // namespace lorikeet::ops
