#pragma once

// Included by .cu files alone.
#include "ops/cuda_vector.h"

namespace lorikeet::ops::device {

/// Rotates a pair by the angle of this cosine and sine.
__device__ __forceinline__ void rotate_pair(float& low, float& high, float cos, float sin) {
  const float x = low, y = high;
  low = x * cos - y * sin;
  high = y * cos + x * sin;
}

/// Rotates n pairs by the angles whose cosines and sines begin at `cos` and `sin`, or back where `sign` is -1
/// (rotary.h). n is 1, or a multiple of 4 with both aligned to 16 bytes.
template <int n>
__device__ __forceinline__ void rotate_pairs(float (&low)[n], float (&high)[n], const float* cos,
                                             const float* sin, float sign) {
  float c[n], s[n];
  load_floats<n>(cos, c);
  load_floats<n>(sin, s);
#pragma unroll
  for (int j = 0; j < n; ++j) rotate_pair(low[j], high[j], c[j], sign * s[j]);
}

/// Two accesses of n elements each that follow each other, as n neighbouring pairs.
template <int n>
__device__ __forceinline__ void split_pairs(float (&low)[n], float (&high)[n]) {
  float both[2 * n];
#pragma unroll
  for (int j = 0; j < n; ++j) both[j] = low[j], both[n + j] = high[j];
#pragma unroll
  for (int j = 0; j < n; ++j) low[j] = both[2 * j], high[j] = both[2 * j + 1];
}

/// The inverse of split_pairs.
template <int n>
__device__ __forceinline__ void join_pairs(float (&low)[n], float (&high)[n]) {
  float both[2 * n];
#pragma unroll
  for (int j = 0; j < n; ++j) both[2 * j] = low[j], both[2 * j + 1] = high[j];
#pragma unroll
  for (int j = 0; j < n; ++j) low[j] = both[j], high[j] = both[n + j];
}

/// Rotates n pairs that lie in two accesses: of halves one access each, or, interleaved, two that follow each
/// other. `cos`, `sin` and `sign` as in rotate_pairs.
template <bool interleaved, int n>
__device__ __forceinline__ void rotate_accesses(float (&low)[n], float (&high)[n], const float* cos,
                                                const float* sin, float sign) {
  if constexpr (interleaved) split_pairs(low, high);
  rotate_pairs(low, high, cos, sin, sign);
  if constexpr (interleaved) join_pairs(low, high);
}

}  // namespace lorikeet::ops::device
