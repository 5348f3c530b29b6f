#pragma once

#include <cstdint>

#include "ops/causal_conv/causal_conv_cuda.h"

// The gated short convolution on a GPU (gated_conv.h), without libtorch. All pointers are device memory, rows
// and the weight aligned to 16 bytes.
namespace lorikeet::ops {

struct GatedConvOnDevice {
  std::int64_t rows, channels, sequences;
  std::int64_t taps;
  const std::int32_t* bounds;  ///< [sequences + 1]: sequence s has the rows [bounds[s], bounds[s + 1])
  const void* projected;       ///< [rows, 3 channels], dense: [b | c | x]
  const void* weight;  ///< [channels, taps], dense: fp32 where `is_fp32`, else of the rows' element type
  bool is_fp32;
};

/// As for the convolution alone.
constexpr bool gated_conv_kernel_fits(CudaElement element, std::int64_t channels, std::int64_t taps) {
  return causal_conv_kernel_fits(element, channels, taps);
}

/// One launch each; nothing where there are no elements. before: [sequences, taps - 1, channels], dense, or
/// nullptr: zeros. y: [rows, channels], dense. `stream` is a cudaStream_t. They throw Error when the launch
/// fails, and always in a build without CUDA.
void launch_gated_conv(CudaElement element, const GatedConvOnDevice& in, const void* before, void* y,
                       void* stream);
/// dy: dense; dprojected: as projected; y: forward's result, or nullptr where nobody wants it.
void launch_gated_conv_backward(CudaElement element, const GatedConvOnDevice& in, const void* dy,
                                void* dprojected, void* y, void* stream);

}  // namespace lorikeet::ops
