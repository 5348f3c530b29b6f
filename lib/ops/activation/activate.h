#pragma once

// Included by .cu files alone.
#include <cuda_runtime.h>

#include "ops/activation/kind.h"

namespace lorikeet::ops::device {

/// A function's value and its derivative.
struct Activated {
  float value, slope;
};

/// A gated activation's value, and the gradients of gate and up.
struct GatedActivated {
  float value, gate, up;
};

/// To 4 units in the last place or so. A division to the last bit has a branch, and a kernel that has one for
/// each number waits for each.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + expf(-x)); }

/// Of a kind that is a function of one number.
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

/// Activation::kClampedSwiglu; `d`: its gradient.
__device__ __forceinline__ GatedActivated clamped_swiglu(float gate, float up, float d) {
  constexpr auto kLimit = static_cast<float>(kSwigluLimit), kAlpha = static_cast<float>(kSwigluAlpha);
  const float g = gate > kLimit ? kLimit : gate;
  const float u = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
  // Before the rest, so that gate and up needn't stay in registers.
  const float of_gate = gate <= kLimit ? d : 0.0F, of_up = fabsf(up) <= kLimit ? d : 0.0F;
  const float s = sigmoid(kAlpha * g), value = g * s;
  return {(u + 1.0F) * value, of_gate * (s + kAlpha * value * (1.0F - s)) * (u + 1.0F), of_up * value};
}

/// A gated activation's value.
__device__ __forceinline__ float gated(Activation kind, float gate, float up) {
  if (kind == Activation::kClampedSwiglu) return clamped_swiglu(gate, up, 0.0F).value;
  return activate(kind, gate).value * up;
}

/// The same with the gradients of gate and up where its own is `d`.
__device__ __forceinline__ GatedActivated gated_backward(Activation kind, float gate, float up, float d) {
  if (kind == Activation::kClampedSwiglu) return clamped_swiglu(gate, up, d);
  const Activated activated = activate(kind, gate);
  return {activated.value * up, d * activated.slope * up, d * activated.value};
}

}  // namespace lorikeet::ops::device
