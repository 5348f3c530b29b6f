#pragma once

#include <cstdint>

#include "ops/cuda_element.h"

// Attention sinks on a GPU (sinks.h), without libtorch. All pointers are device memory.
namespace lorikeet::ops {

/// Where statistics of token t and head h lie: at t / length * sequence + h * head + t % length * token.
struct StatisticsPlaces {
  std::int64_t length, sequence, head, token;
};

struct SinksOnDevice {
  std::int64_t tokens, heads, head_dim;
  const float* sinks;  ///< [heads]
  float* lse;
  StatisticsPlaces places;
};

/// Whether the kernel takes heads of this size: whole accesses of 16 bytes; and so many of them.
constexpr bool sinks_kernel_fits(CudaElement element, std::int64_t heads, std::int64_t head_dim) {
  return head_dim % (element == CudaElement::kF32 ? 4 : 8) == 0 && heads <= 65535;
}

/// Scales out [tokens, heads * head_dim], dense and aligned to 16 bytes, and changes lse, in place. One
/// launch; nothing where there are no elements. `stream` is a cudaStream_t. Throws Error when the launch
/// fails, and always in a build without CUDA.
void launch_apply_sinks(CudaElement element, const SinksOnDevice& in, void* out, void* stream);

}  // namespace lorikeet::ops
