#pragma once

// Included by .cu files alone.
#include <cuda_runtime.h>

#include "ops/activation/kind.h"

namespace lorikeet::ops::device {

/// A function's value and its derivative.
struct Activated {
  float value, slope;
};

/// To 4 units in the last place or so. A division to the last bit has a branch, and a kernel that has one for
/// each number waits for each.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + expf(-x)); }

__device__ __forceinline__ Activated activate(Activation kind, float x) {
  if (kind == Activation::kSilu) {
    const float s = sigmoid(x);
    return {x * s, s * (1.0F + x * (1.0F - s))};
  }
  if (kind == Activation::kGeluTanh) {
    // (1 + tanh(u)) / 2 = sigmoid(2u).
    constexpr float kTwoBeta = 1.5957691216F, kCubic = 0.044715F;  // 2 sqrt(2 / pi)
    const float s = sigmoid(kTwoBeta * (x + kCubic * x * x * x));
    const float inner = kTwoBeta * (1.0F + 3.0F * kCubic * x * x);
    return {x * s, s + x * s * (1.0F - s) * inner};
  }
  const float cdf = 0.5F * erfcf(-x * 0.70710678F);
  return {x * cdf, cdf + x * 0.39894228F * expf(-0.5F * x * x)};
}

}  // namespace lorikeet::ops::device
