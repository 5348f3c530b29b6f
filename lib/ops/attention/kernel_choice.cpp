#include "ops/attention/kernel_choice.h"

#include <iterator>

#include "device/device.h"
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
  AttentionTarget target{.device = kernels_of(tensor), .dtype = tensor.scalar_type()};
  if (tensor.is_meta() && dry_target() != nullptr) target.capability = dry_target()->capability;
  if (tensor.is_cuda()) {
    const auto& devices = device::cuda_devices();
    const int index = tensor.get_device();
    if (index < std::ssize(devices))
      target.capability = devices[static_cast<std::size_t>(index)].capability();
  }
  return target;
}

AttentionKernel choose_attention_kernel(const AttentionTarget& target, std::int64_t head_dim,
                                        const AttentionOptions& options) {
  if (reference_ops()) return AttentionKernel::kBlocks;
  if (target.device == at::kCPU && (target.dtype == at::kFloat || target.dtype == at::kBFloat16))
    return AttentionKernel::kCpu;
  if (target.device == at::kCUDA) {
    if (flash_takes(target, head_dim, options)) return AttentionKernel::kFlash;
    if (efficient_takes(target, head_dim, options)) return AttentionKernel::kEfficient;
  }
  return AttentionKernel::kBlocks;
}

}  // namespace lorikeet::ops
