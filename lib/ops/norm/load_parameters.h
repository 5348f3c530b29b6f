#pragma once

// Included by .cu files alone.
#include "ops/cuda_vector.h"

namespace lorikeet::ops::device {

/// n frozen parameters of a norm from element i on, fp32 or of the rows' element type, with an offset added.
template <typename T, int n>
__device__ __forceinline__ void load_parameters(const void* from, bool is_fp32, std::int64_t i, float offset,
                                                float (&out)[n]) {
  if (is_fp32) {
    load_floats<n>(static_cast<const float*>(from) + i, out);
  } else {
    unpack<T, n>(load_pack<n>(static_cast<const T*>(from) + i), out);
  }
#pragma unroll
  for (int j = 0; j < n; ++j) out[j] += offset;
}

/// n numbers of a norm's result from element i on, of those that are centred, with their weights. `bias`: or
/// nullptr.
template <typename T, int n>
__device__ __forceinline__ Pack<T, n> scaled(const float (&centred)[n], const float (&weight)[n], float rstd,
                                             const void* bias, bool is_fp32, std::int64_t i) {
  float y[n];
#pragma unroll
  for (int j = 0; j < n; ++j) y[j] = centred[j] * rstd * weight[j];
  if (bias != nullptr) {
    float b[n];
    load_parameters<T, n>(bias, is_fp32, i, 0.0F, b);
#pragma unroll
    for (int j = 0; j < n; ++j) y[j] += b[j];
  }
  return pack<T, n>(y);
}

}  // namespace lorikeet::ops::device
