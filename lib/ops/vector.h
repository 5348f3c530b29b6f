#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <bit>
#include <cstdint>

#include "ops/dry_run.h"
#include "ops/reference_ops.h"

// Helpers of the CPU kernels: plain loops that the compiler vectorises, compiled once for each level of
// x86-64. Sources that use them are built with -O3 and without trapping math (lib/ops/CMakeLists.txt).

// Put before a function: it is compiled for three levels, and the best is chosen when the program starts.
// Everything that it calls must be LORIKEET_INLINE, or it would stay at the lowest level. Sanitizers can't
// run such a choice.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LORIKEET_VECTOR_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define LORIKEET_VECTOR_CLONES
#endif
#define LORIKEET_INLINE inline __attribute__((always_inline))

namespace lorikeet::ops::vector {

/// Independent partial sums of a row: one AVX-512 register, so that an addition needn't wait for the last.
inline constexpr std::int64_t kLanes = 16;

/// The bits of a bf16. c10::BFloat16's own conversions don't vectorise well.
struct Bf16 {
  std::uint16_t bits;
};

LORIKEET_INLINE float load(float value) { return value; }
LORIKEET_INLINE float load(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

LORIKEET_INLINE void store(float value, float& out) { out = value; }
/// Rounds to nearest, ties to even; NaN stays NaN.
LORIKEET_INLINE void store(float value, Bf16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  out.bits = static_cast<std::uint16_t>(value != value ? 0x7FC0U : rounded);
}

/// e^x to 2 units in the last place; 0 below -87.3, the largest finite value's neighbourhood above 88.3.
LORIKEET_INLINE float exp(float x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2; e^r by Cephes' polynomial (expf); n is rounded by adding 1.5 * 2^23.
  const float bounded = x < -87.3F ? -87.3F : (x > 88.3F ? 88.3F : x);
  const float shifted = bounded * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float e = (p * r * r + r) + 1.0F;
  const auto power = (std::bit_cast<std::uint32_t>(shifted) - 0x4B400000U + 127U) << 23;
  const float result = e * std::bit_cast<float>(power);
  return x < -87.3F ? 0.0F : (x != x ? x : result);
}

/// 1 / (1 + e^-x).
LORIKEET_INLINE float sigmoid(float x) { return 1.0F / (1.0F + vector::exp(-x)); }

/// tanh by e^-2|x|: absolute error about 1e-7.
LORIKEET_INLINE float tanh(float x) {
  const float t = vector::exp(-2.0F * (x < 0 ? -x : x));
  const float magnitude = (1.0F - t) / (1.0F + t);
  return x < 0 ? -magnitude : (x != x ? x : magnitude);
}

/// P(X < x) of a standard normal X, where `e` is e^(-x^2 / 2): relative error below 1e-6; 0 below -13.2.
LORIKEET_INLINE float normal_cdf(float x, float e) {
  // The smaller tail is e times t times a polynomial in t = 1 / (1 + 0.4 |x|), which was fitted to
  // erfcx(|x| / sqrt(2)) / (2 t) for |x| up to 13.2 by least squares of relative errors at Chebyshev's
  // points.
  const float t = 1.0F / (1.0F + 0.4F * (x < 0 ? -x : x));
  float p = 3.247333048e-2F;
  p = p * t - 1.781086615e-1F;
  p = p * t + 3.850517442e-1F;
  p = p * t - 3.772452005e-1F;
  p = p * t + 1.217471334e-1F;
  p = p * t - 2.781337643e-2F;
  p = p * t + 9.158498637e-2F;
  p = p * t + 1.331045402e-1F;
  p = p * t + 1.596296336e-1F;
  p = p * t + 1.595758783e-1F;
  const float tail = p * t * e;
  return x < 0 ? tail : 1.0F - tail;
}

/// Whether the CPU kernels take the elements of `tensor`: fp32 or bf16 on the CPU, or dry for it, unless
/// references were asked for.
inline bool has_fast_elements(const at::Tensor& tensor) {
  return !reference_ops() && kernels_of(tensor) == at::kCPU &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

/// Whether the CPU kernels take `tensor` as it is: dense as well. All else goes through references.
inline bool is_fast(const at::Tensor& tensor) { return has_fast_elements(tensor) && tensor.is_contiguous(); }

/// Calls f with a null pointer of the element type of `tensor`, for which is_fast holds. Every kernel here
/// computes inside of f: without data it isn't called.
template <typename F>
void dispatch(const at::Tensor& tensor, F&& f) {
  if (tensor.is_meta()) return;
  if (tensor.scalar_type() == at::kFloat) {
    f(static_cast<float*>(nullptr));
  } else {
    f(static_cast<Bf16*>(nullptr));
  }
}

/// Threads that a kernel's scratch has a part for: those of the dry target where `tensor` is dry.
inline std::int64_t threads_for(const at::Tensor& tensor) {
  const bool dry = tensor.is_meta() && dry_target() != nullptr;
  return dry ? dry_target()->threads : at::get_num_threads();
}

/// The elements of a tensor for which is_fast holds.
template <typename T>
T* data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace lorikeet::ops::vector
