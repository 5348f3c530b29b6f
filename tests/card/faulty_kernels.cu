// Each fault that block_threads.h finds, planted in one kernel.
#include "card/faulty_kernels.h"

#include "ops/cuda_tensor_core.h"

namespace lorikeet::card {
namespace {

constexpr int kThreads = 64, kWarp = 32, kWarps = kThreads / kWarp;

__device__ float warp_sum(Fault fault, float value) {
  const unsigned lane = threadIdx.x % kWarp;
  unsigned mask = 0xFFFFFFFFU;
  if (fault == Fault::kShuffleOutsideMask) mask = lane < 16 ? 0x0000FFFFU : 0xFFFF0000U;
  if (fault == Fault::kCallerOutsideMask) mask = 0xFFFFFFFEU;  // lane 0 reads another

  if (fault == Fault::kDifferentOperations && lane == 5) return __shfl_down_sync(mask, value, 1);
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(mask, value, lanes);
  return __shfl_sync(mask, value, 0);
}

__device__ float block_sum(Fault fault, float value) {
  __shared__ float partial[kWarps];
  const unsigned warp = threadIdx.x / kWarp;
  value = warp_sum(fault, value);
  if (threadIdx.x % kWarp == 0 && (fault != Fault::kUninitialisedShared || warp == 0)) partial[warp] = value;
  if (fault == Fault::kTwoBarriers && warp == 0) {
    __syncthreads();
  } else if (fault != Fault::kMissingBarrier) {
    __syncthreads();
  }
  float total = 0;
  for (int i = 0; i < kWarps; ++i) total += partial[i];
  if (fault != Fault::kMissingSecondBarrier) __syncthreads();
  return total;
}

__global__ void sum_kernel(Fault fault, const float* in, float* out) {
  if (fault == Fault::kDivergentBarrier && threadIdx.x >= kWarp) return;
  if (fault == Fault::kEndedLane && threadIdx.x % kWarp < 16) return;
  if (fault == Fault::kTooMuchShared) {
    __shared__ float large[16384];
    large[threadIdx.x] = in[threadIdx.x];
  }
  const float once = block_sum(fault, in[threadIdx.x]);
  const float twice = block_sum(fault, 2 * in[threadIdx.x]);
  if (threadIdx.x == kThreads - 1) {
    out[0] = once;
    out[1] = twice;
  }
}

__global__ void copied_sum_kernel(CopyFault fault, const float* in, float* out) {
  __shared__ uint4 copies[kThreads / 4];
  const auto* const numbers = reinterpret_cast<const float*>(copies);
  for (int turn = 0; turn < 2; ++turn) {
    if (threadIdx.x < kThreads / 4)
      ops::device::begin_copy(copies + threadIdx.x, in + 4 * threadIdx.x,
                              /*is_there=*/turn == 0 || threadIdx.x < kThreads / 8);
    ops::device::end_group();
    if (fault == CopyFault::kNotAwaited) {
      ops::device::wait_for_groups<1>();
    } else {
      ops::device::wait_for_groups<0>();
    }
    __syncthreads();
    float total = 0;
    for (int i = 0; i < kThreads; ++i) total += numbers[i];
    if (threadIdx.x == kThreads - 1) out[turn] = total;
    if (fault != CopyFault::kOverRead) __syncthreads();
  }
}

}  // namespace

void launch_copied_sum(CopyFault fault, const float* in, float* out, void* stream) {
  copied_sum_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(fault, in, out);
}

void launch_sum(Fault fault, const float* in, float* out, void* stream) {
  sum_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(fault, in, out);
}

}  // namespace lorikeet::card
