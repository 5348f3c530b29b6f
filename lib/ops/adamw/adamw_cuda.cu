// One pass over the gradients for their norm, a block that turns it into the step's scalars, and one pass
// over everything for the update. The host learns nothing of it and waits for nothing.
#include "ops/adamw/adamw_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

constexpr int kWarp = 32, kThreads = 256, kAccess = 4;

// The sum over a block's threads, in the first of them.
__device__ __forceinline__ float block_sum(float value) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, lanes);
  __shared__ float partial[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0;
  if (threadIdx.x == 0) {
    for (const float sum : partial) total += sum;
  }
  return total;
}

// Calls f(i, count) for this thread's elements, kAccess of them from i on, and one for the last few.
template <typename F>
__device__ __forceinline__ void visit(std::int64_t n, const F& f) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads, packs = n / kAccess;
  for (std::int64_t pack = at; pack < packs; pack += step)
    f(pack * kAccess, std::integral_constant<int, kAccess>());
  if (at < n - packs * kAccess) f(packs * kAccess + at, std::integral_constant<int, 1>());
}

__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(const float* gradients, std::int64_t n, float over_scale, float* partial_sums) {
  float sum = 0;
  visit(n, [&](std::int64_t i, auto count) {
    constexpr int k = decltype(count)::value;
    float g[k];
    device::load_floats<k>(gradients + i, g);
#pragma unroll
    for (int j = 0; j < k; ++j) sum += (g[j] * over_scale) * (g[j] * over_scale);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = sum;
}

// What all elements of a step share.
struct Scalars {
  float gradient_factor;  // 1 / scale, and the clipping
  float is_finite;        // 1 or 0
  float step_size;        // lr / (1 - beta1^t)
  float root_correction;  // sqrt(1 - beta2^t)
};
static_assert(sizeof(Scalars) == kAdamWScalars * sizeof(float));

__global__ void __launch_bounds__(kThreads)
    scalars_kernel(const float* partial_sums, int count, AdamWStep step, float* updates, float* norm_out,
                   Scalars* scalars) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partial_sums[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const float norm = sqrtf(sum);
  *norm_out = norm;
  const bool is_finite = isfinite(norm);
  const float t = *updates + (is_finite ? 1.0F : 0.0F);
  *updates = t;
  float factor = 1.0F;
  if (step.clip_grad_norm > 0) {
    factor = static_cast<float>(step.clip_grad_norm) / (norm + 1e-6F);
    factor = factor < 1.0F ? factor : 1.0F;
  }
  scalars->gradient_factor = factor * static_cast<float>(1.0 / step.gradient_scale);
  scalars->is_finite = is_finite ? 1.0F : 0.0F;
  scalars->step_size = static_cast<float>(step.lr / (1.0 - pow(step.beta1, static_cast<double>(t))));
  scalars->root_correction = static_cast<float>(sqrt(1.0 - pow(step.beta2, static_cast<double>(t))));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    update_kernel(float* values, float* gradients, float* exp_avg, float* exp_avg_sq, T* compute,
                  std::int64_t n, float beta1, float rest1, float beta2, float rest2, float eps, float decay,
                  const Scalars* scalars) {
  const Scalars step = *scalars;
  visit(n, [&](std::int64_t i, auto count) {
    constexpr int k = decltype(count)::value;
    if (step.is_finite != 0) {
      float g[k], p[k], m[k], v[k];
      device::load_floats<k>(gradients + i, g);
      device::load_floats<k>(values + i, p);
      device::load_floats<k>(exp_avg + i, m);
      device::load_floats<k>(exp_avg_sq + i, v);
#pragma unroll
      for (int j = 0; j < k; ++j) {
        g[j] *= step.gradient_factor;
        p[j] *= decay;
        m[j] = beta1 * m[j] + rest1 * g[j];
        v[j] = beta2 * v[j] + rest2 * g[j] * g[j];
        p[j] -= step.step_size * m[j] / (sqrtf(v[j]) / step.root_correction + eps);
      }
      device::store_pack<k>(device::pack<float, k>(p), values + i);
      device::store_pack<k>(device::pack<float, k>(m), exp_avg + i);
      device::store_pack<k>(device::pack<float, k>(v), exp_avg_sq + i);
      if (compute != nullptr) device::store_pack<k>(device::pack<T, k>(p), compute + i);
    }
    const float zeros[k] = {};
    device::store_pack<k>(device::pack<float, k>(zeros), gradients + i);
  });
}

constexpr std::int64_t kBlockNumbers = std::int64_t{kThreads} * kAccess;

}  // namespace

void launch_adamw(CudaElement element, const AdamWOnDevice& in, const AdamWStep& step, void* stream) {
  if (in.n == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  auto* const scalars = reinterpret_cast<Scalars*>(in.scalars);
  const unsigned sums = device::blocks_of(in.n, kBlockNumbers, kAdamWPartialSums);
  sum_squares_kernel<<<sums, kThreads, 0, on>>>(
      in.gradients, in.n, static_cast<float>(1.0 / step.gradient_scale), in.partial_sums);
  scalars_kernel<<<1, kThreads, 0, on>>>(in.partial_sums, static_cast<int>(sums), step, in.updates, in.norm,
                                         scalars);
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    update_kernel<T><<<device::blocks_of(in.n, kBlockNumbers), kThreads, 0, on>>>(
        in.values, in.gradients, in.exp_avg, in.exp_avg_sq, static_cast<T*>(in.compute), in.n,
        static_cast<float>(step.beta1), static_cast<float>(1.0 - step.beta1), static_cast<float>(step.beta2),
        static_cast<float>(1.0 - step.beta2), static_cast<float>(step.eps),
        static_cast<float>(1.0 - step.lr * step.weight_decay), scalars);
  });
  device::check_launch("adamw_step", cudaGetLastError());
}

}  // namespace lorikeet::ops
