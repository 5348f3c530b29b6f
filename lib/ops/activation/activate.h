#pragma once

// Included by .cu files alone.
#include <cuda_runtime.h>

#include "ops/activation/kind.h"

namespace lorikeet::ops::device {

/// A function's value and its derivative.
struct Activated {
  float value, slope;
};

__device__ __forceinline__ Activated activate(Activation kind, float x) {
  if (kind == Activation::kSilu) {
    const float s = 1.0F / (1.0F + expf(-x));
    return {x * s, s * (1.0F + x * (1.0F - s))};
  }
  if (kind == Activation::kGeluTanh) {
    constexpr float kBeta = 0.7978845608F, kCubic = 0.044715F;  // sqrt(2 / pi)
    const float t = tanhf(kBeta * (x + kCubic * x * x * x));
    const float inner = kBeta * (1.0F + 3.0F * kCubic * x * x);
    return {0.5F * x * (1.0F + t), 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner};
  }
  const float cdf = 0.5F * erfcf(-x * 0.70710678F);
  return {x * cdf, cdf + x * 0.39894228F * expf(-0.5F * x * x)};
}

}  // namespace lorikeet::ops::device
