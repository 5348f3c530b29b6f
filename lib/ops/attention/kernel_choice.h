#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention/attention.h"

namespace lorikeet::ops {

/// The implementations of attention over packed sequences.
enum class AttentionKernel {
  kCpu,        ///< our own, fp32 and bf16 on a CPU (cpu.h)
  kFlash,      ///< FlashAttention through ATen (cuda.h)
  kCudnn,      ///< cuDNN's over sequences of one length, through ATen (cuda.h)
  kEfficient,  ///< ATen's memory-efficient attention (cuda.h)
  kBlocks,     ///< plain ATen calls, a block of queries at a time (blocks.h)
};

/// What attention is to run on.
struct AttentionTarget {
  at::DeviceType device = at::kCPU;
  int capability =
      0;  ///< a GPU's compute capability, 10 * major + minor; 0 where the driver doesn't report it
  at::ScalarType dtype = at::kFloat;
};

/// The device and dtype of `tensor`.
AttentionTarget attention_target(const at::Tensor& tensor);

/// The fastest implementation that takes this, forward and backward. `common_length`: see common_length; 0
/// leaves out cuDNN. A GPU whose capability isn't known counts as older than all. Under reference_ops()
/// kBlocks for all. Nothing but these and whether algorithms have to be deterministic decides, so that a
/// pass computed again takes the same.
AttentionKernel choose_attention_kernel(const AttentionTarget& target, std::int64_t head_dim,
                                        const AttentionOptions& options, std::int64_t common_length = 0);

/// The length of each of the sequences, where all have the same; else 0.
std::int64_t common_length(const Sequences& sequences);

}  // namespace lorikeet::ops
