#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/attention.h"
#include "ops/causal_conv/causal_conv_cuda.h"

// What the operators with a causal convolution over packed sequences (causal_conv.h, gated_conv.h) ask of
// their operands. rows: [T, any width]; weight: [C, K].
namespace lorikeet::ops {

inline constexpr std::int64_t kMostTaps = 8;

/// Throws Error from `op` unless the sequences end with the rows.
void check_ends(const char* op, const at::Tensor& rows, const Sequences& sequences);
/// Throws Error from `op` unless `before` is undefined or [sequences, K - 1, C] of the rows' type.
void check_before(const char* op, const at::Tensor& before, const at::Tensor& rows, const at::Tensor& weight,
                  const Sequences& sequences);

/// Whether CUDA kernels take the rows and where they lie; others go through the reference. bias: [C], or
/// undefined.
bool convolves_on_cuda(const at::Tensor& rows, const at::Tensor& weight, const Sequences& sequences,
                       const at::Tensor& bias = {});
/// As these kernels read them.
CausalConvOnDevice convolution_on_device(const at::Tensor& rows, const at::Tensor& weight,
                                         const Sequences& sequences, const at::Tensor& bias = {});

/// The weight as the CPU's kernels read it: fp32 [K, C], dense.
at::Tensor taps_by_channels(const at::Tensor& weight);

}  // namespace lorikeet::ops
