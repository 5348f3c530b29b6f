#pragma once

#include <cstdint>

#include "ops/causal_conv/causal_conv_cuda.h"

// The gated short convolution on a GPU (gated_conv.h), without libtorch. It takes what the convolution alone
// takes; x: [rows, 3 channels], of [b | c | x].
namespace lorikeet::ops {

/// One launch each; nothing where there are no elements. before: [sequences, taps - 1, channels], dense, or
/// nullptr: zeros. y: [rows, channels], dense. `stream` is a cudaStream_t. They throw Error when the launch
/// fails, and always in a build without CUDA.
void launch_gated_conv(CudaElement element, const CausalConvOnDevice& in, const void* before, void* y,
                       void* stream);
/// dy: dense; dprojected: as x, its rows as far apart; y: forward's result, or nullptr where nobody wants it.
void launch_gated_conv_backward(CudaElement element, const CausalConvOnDevice& in, const void* dy,
                                void* dprojected, void* y, void* stream);

}  // namespace lorikeet::ops
