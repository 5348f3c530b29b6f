#pragma once

// Included by .cu files alone: sums over what blocks left in memory, four neighbouring fp32 numbers a thread.
#include <cuda_runtime.h>

#include <cstdint>

namespace lorikeet::ops::device {

/// The sum of `count` times four numbers, each `apart` from the one before.
__device__ __forceinline__ float4 sum_of(const float* from, std::int64_t count, std::int64_t apart) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    const float4 next = *reinterpret_cast<const float4*>(from + i * apart);
    sum.x += next.x, sum.y += next.y, sum.z += next.z, sum.w += next.w;
  }
  return sum;
}

/// Four numbers += scale * sum.
__device__ __forceinline__ void add_sum(const float4& sum, float scale, float* numbers) {
  float4* const to = reinterpret_cast<float4*>(numbers);
  float4 total = *to;
  total.x += scale * sum.x, total.y += scale * sum.y, total.z += scale * sum.z, total.w += scale * sum.w;
  *to = total;
}

}  // namespace lorikeet::ops::device
