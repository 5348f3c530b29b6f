#include "ops/attention/kernel_choice.h"

#include <ATen/Context.h>

#include "ops/capability.h"
#include "ops/dry_run.h"
#include "ops/reference_ops.h"

namespace lorikeet::ops {
namespace {

constexpr int kTuring = 75, kAmpere = 80;

// What ATen's check_tensor_shapes and check_head_dim_size_flash accept of FlashAttention, backward included.
bool flash_takes(const AttentionTarget& target, std::int64_t head_dim, const AttentionOptions& options) {
  if (target.capability < kAmpere || !at::isReducedFloatingType(target.dtype) || options.soft_cap > 0)
    return false;
  if (head_dim % 8 != 0 || head_dim > 256) return false;
  // The backward kernel of these sizes needs more shared memory than these GPUs have.
  const bool little_shared_memory =
      (target.capability > kAmpere && target.capability < 90) || target.capability >= 120;
  return !little_shared_memory || head_dim <= 192 || head_dim > 224;
}

// Where it was measured to be faster than FlashAttention, on Hopper by 1.2 to 1.9 times
// (benchmarks/results/card.md). cuDNN makes a plan for each shape, which takes 0.1 s. Rows that are cut at a
// maximum have one length, which mostly is a multiple of 256; of others few are, so that plans stay few. Its
// backward may add in another order each time.
bool cudnn_takes(const AttentionTarget& target, std::int64_t head_dim, const AttentionOptions& options,
                 std::int64_t common_length) {
  constexpr std::int64_t kStep = 256;
  return is_hopper(target.capability) && at::isReducedFloatingType(target.dtype) &&
         (head_dim == 64 || head_dim == 128) && options.soft_cap == 0 && options.window == 0 &&
         common_length > 0 && common_length % kStep == 0 && !at::globalContext().deterministicAlgorithms();
}

// Its kernels for fp16 begin with Turing (of those that the library is built for), for bf16 with Ampere. Rows
// of heads are read 16 bytes at a time.
bool efficient_takes(const AttentionTarget& target, std::int64_t head_dim, const AttentionOptions& options) {
  if (options.soft_cap > 0 || (options.window > 0 && !options.causal)) return false;
  if (target.dtype == at::kFloat) return target.capability >= kTuring && head_dim % 4 == 0;
  const int least = target.dtype == at::kBFloat16 ? kAmpere : kTuring;
  return at::isReducedFloatingType(target.dtype) && target.capability >= least && head_dim % 8 == 0;
}

}  // namespace

AttentionTarget attention_target(const at::Tensor& tensor) {
  return {.device = kernels_of(tensor), .capability = capability_of(tensor), .dtype = tensor.scalar_type()};
}

AttentionKernel choose_attention_kernel(const AttentionTarget& target, std::int64_t head_dim,
                                        const AttentionOptions& options, std::int64_t common_length) {
  if (reference_ops()) return AttentionKernel::kBlocks;
  if (target.device == at::kCPU && (target.dtype == at::kFloat || target.dtype == at::kBFloat16))
    return AttentionKernel::kCpu;
  if (target.device == at::kCUDA) {
    if (cudnn_takes(target, head_dim, options, common_length)) return AttentionKernel::kCudnn;
    if (flash_takes(target, head_dim, options)) return AttentionKernel::kFlash;
    if (efficient_takes(target, head_dim, options)) return AttentionKernel::kEfficient;
  }
  return AttentionKernel::kBlocks;
}

std::int64_t common_length(const Sequences& sequences) {
  const auto& ends = sequences.cu_seqlens;
  for (std::size_t s = 0; s + 1 < ends.size(); ++s) {
    if (ends[s + 1] - ends[s] != sequences.max_seqlen) return 0;
  }
  return sequences.max_seqlen;
}

}  // namespace lorikeet::ops
