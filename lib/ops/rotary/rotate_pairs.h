#pragma once

// Included by .cu files alone.
#include "ops/cuda_vector.h"

namespace lorikeet::ops::device {

/// Rotates n pairs by the angles whose cosines and sines begin at `cos` and `sin`, or back where `sign` is -1
/// (rotary.h). n is 1, or a multiple of 4 with both aligned to 16 bytes.
template <int n>
__device__ __forceinline__ void rotate_pairs(float (&low)[n], float (&high)[n], const float* cos,
                                             const float* sin, float sign) {
  float c[n], s[n];
  load_floats<n>(cos, c);
  load_floats<n>(sin, s);
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const float x = low[j], y = high[j], turn = sign * s[j];
    low[j] = x * c[j] - y * turn;
    high[j] = y * c[j] + x * turn;
  }
}

}  // namespace lorikeet::ops::device
