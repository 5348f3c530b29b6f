#include "random_fill.h"

#include "ops/cuda_vector.h"

namespace lorikeet::bench {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014) over a counter.
__device__ __forceinline__ std::uint64_t random_bits(std::uint64_t seed, std::int64_t i) {
  std::uint64_t z = (seed << 40) + static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// Box and Muller 1958.
__device__ __forceinline__ float random_normal(std::uint64_t seed, std::int64_t i) {
  const std::uint64_t bits = random_bits(seed, i);
  const float u = (static_cast<float>(bits >> 40) + 0.5F) * 0x1p-24F;
  const float v = static_cast<float>(bits & 0xFFFFFFU) * 0x1p-24F;
  return sqrtf(-2.0F * logf(u)) * cosf(6.2831853F * v);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    fill_normal_kernel(T* out, std::int64_t count, std::uint64_t seed, Normal values) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step)
    ops::device::narrow(values.mean + values.deviation * random_normal(seed, i), out[i]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    fill_integers_kernel(T* out, std::int64_t count, std::uint64_t seed, std::uint64_t end) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step)
    out[i] = static_cast<T>((random_bits(seed, i) >> 32) % end);
}

unsigned grid_of(std::int64_t count) { return ops::device::blocks_of(count, kThreads, kMostBlocks); }

template <typename T>
void fill_normal(T* out, std::int64_t count, std::uint64_t seed, const Normal& values) {
  fill_normal_kernel<T><<<grid_of(count), kThreads, 0, nullptr>>>(out, count, seed, values);
  ops::device::check_launch("random_fill", cudaGetLastError());
}

template <typename T>
void fill_integers_of(T* out, std::int64_t count, std::uint64_t seed, std::uint64_t end) {
  fill_integers_kernel<T><<<grid_of(count), kThreads, 0, nullptr>>>(out, count, seed, end);
  ops::device::check_launch("random_fill", cudaGetLastError());
}

}  // namespace

void fill_bf16(void* out, std::int64_t count, std::uint64_t seed, const Normal& values) {
  fill_normal(static_cast<__nv_bfloat16*>(out), count, seed, values);
}

void fill_fp32(float* out, std::int64_t count, std::uint64_t seed, const Normal& values) {
  fill_normal(out, count, seed, values);
}

void fill_integers(std::int64_t* out, std::int64_t count, std::uint64_t seed, std::int64_t end) {
  fill_integers_of(out, count, seed, static_cast<std::uint64_t>(end));
}

void fill_bytes(std::uint8_t* out, std::int64_t count, std::uint64_t seed) {
  fill_integers_of(out, count, seed, 256);
}

}  // namespace lorikeet::bench
