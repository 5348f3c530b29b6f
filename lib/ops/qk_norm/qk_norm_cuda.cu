// Lanes of a warp share a head: each holds one access of its lower half and the one of its upper half that
// rotary pairs with it, so that a head is read once and its sum is a few shuffles.
#include "ops/qk_norm/qk_norm_cuda.h"

#include <type_traits>

#include "ops/norm/load_parameters.h"
#include "ops/rotary/rotate_pairs.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 128;

// Two accesses of a head, or of what belongs to its elements.
template <int n>
struct Pair {
  float low[n], high[n];
};

template <typename T, int n>
__device__ __forceinline__ Pair<n> load_pair(const T* low, std::int64_t half) {
  Pair<n> pair;
  unpack<T, n>(load_pack<n>(low), pair.low);
  unpack<T, n>(load_pack<n>(low + half), pair.high);
  return pair;
}

template <typename T, int n>
__device__ __forceinline__ void store_pair(const Pair<n>& pair, T* low, std::int64_t half) {
  store_pack<n>(device::pack<T, n>(pair.low), low);
  store_pack<n>(device::pack<T, n>(pair.high), low + half);
}

template <typename T, int n>
__device__ __forceinline__ Pair<n> load_scale(const void* weight, bool is_fp32, float offset, std::int64_t i,
                                              std::int64_t half) {
  Pair<n> pair;
  device::load_parameters<T, n>(weight, is_fp32, i, offset, pair.low);
  device::load_parameters<T, n>(weight, is_fp32, half + i, offset, pair.high);
  return pair;
}

// The sum over the lanes of a head, in each of them. All threads of a block call it.
__device__ __forceinline__ float head_sum(float value, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, apart);
  return value;
}

template <typename T>
__device__ __forceinline__ float rounded(float value) {
  T element;
  device::narrow(value, element);
  return device::widen(element);
}

// All but the pointers, which are arguments of their own.
struct Heads {
  std::int64_t rows, q_heads, kv_heads, head_dim;
  int lanes;  // of a head
  bool is_fp32;
  float offset, eps;

  // Calls f(row, head, is_here) for the heads of this thread's lane, `per_row` of each row, as often in every
  // thread of a block: is_here is false behind the last head, and in lanes that have no elements because
  // head_dim is no power of two.
  template <typename F>
  __device__ __forceinline__ void visit(std::int64_t per_row, bool has_elements, const F& f) const {
    const std::int64_t per_block = kThreads / lanes, all = rows * per_row;
    for (std::int64_t begin = blockIdx.x * per_block; begin < all; begin += gridDim.x * per_block) {
      const std::int64_t at = begin + static_cast<int>(threadIdx.x) / lanes;
      const std::int64_t row = at / per_row;
      f(row, at - row * per_row, has_elements && at < all);
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    norm_and_rotate_kernel(Heads in, const void* q_weight, const void* k_weight, const float* cos,
                           const float* sin, const T* qkv, T* out, float* q_rstd, float* k_rstd) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t head_dim = in.head_dim, half = head_dim / 2, q_heads = in.q_heads,
                     kv_heads = in.kv_heads;
  const int lane = static_cast<int>(threadIdx.x) % in.lanes;
  const std::int64_t i = lane * n;
  in.visit(q_heads + 2 * kv_heads, i < half, [&](std::int64_t row, std::int64_t head, bool is_here) {
    const std::int64_t begin = (row * (q_heads + 2 * kv_heads) + head) * head_dim + i;
    const bool is_value = head >= q_heads + kv_heads, is_key = head >= q_heads;
    Pair<n> x{};
    float squares = 0;
    if (is_here) x = load_pair<T, n>(qkv + begin, half);
#pragma unroll
    for (int j = 0; j < n; ++j) squares += x.low[j] * x.low[j] + x.high[j] * x.high[j];
    const float rstd = 1.0F / sqrtf(head_sum(squares, in.lanes) / static_cast<float>(head_dim) + in.eps);
    if (!is_here) return;
    if (!is_value) {
      const Pair<n> w = load_scale<T, n>(is_key ? k_weight : q_weight, in.is_fp32, in.offset, i, half);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        x.low[j] = rounded<T>(x.low[j] * rstd * w.low[j]);
        x.high[j] = rounded<T>(x.high[j] * rstd * w.high[j]);
      }
      device::rotate_pairs(x.low, x.high, cos + row * half + i, sin + row * half + i, 1.0F);
      if (lane == 0 && q_rstd != nullptr) {
        (is_key ? k_rstd[row * kv_heads + head - q_heads] : q_rstd[row * q_heads + head]) = rstd;
      }
    }
    store_pair<T, n>(x, out + begin, half);
  });
}

// Rows of the gradients' tensors.
struct GradientRows {
  std::int64_t q, k, v;
};

// With the gradient g of the normed head, which is d rotated back, times the scale:
// dx = rstd g - x rstd^3 mean(g x). Values' gradients are those of the result.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    norm_and_rotate_backward_kernel(Heads in, const void* q_weight, const void* k_weight, const float* cos,
                                    const float* sin, const T* qkv, const float* q_rstd, const float* k_rstd,
                                    GradientRows of_row, const T* dq, const T* dk, const T* dv, T* dqkv) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t head_dim = in.head_dim, half = head_dim / 2, q_heads = in.q_heads,
                     kv_heads = in.kv_heads;
  const std::int64_t i = static_cast<int>(threadIdx.x) % in.lanes * n;
  in.visit(q_heads + 2 * kv_heads, i < half, [&](std::int64_t row, std::int64_t head, bool is_here) {
    const std::int64_t begin = (row * (q_heads + 2 * kv_heads) + head) * head_dim + i;
    const bool is_value = head >= q_heads + kv_heads, is_key = head >= q_heads;
    Pair<n> x{}, g{};
    float products = 0;
    if (is_here) {
      const T* gradient = is_value ? dv + row * of_row.v + (head - q_heads - kv_heads) * head_dim
                          : is_key ? dk + row * of_row.k + (head - q_heads) * head_dim
                                   : dq + row * of_row.q + head * head_dim;
      g = load_pair<T, n>(gradient + i, half);
    }
    if (is_here && !is_value) {
      x = load_pair<T, n>(qkv + begin, half);
      device::rotate_pairs(g.low, g.high, cos + row * half + i, sin + row * half + i, -1.0F);
      const Pair<n> w = load_scale<T, n>(is_key ? k_weight : q_weight, in.is_fp32, in.offset, i, half);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        g.low[j] *= w.low[j];
        g.high[j] *= w.high[j];
        products += g.low[j] * x.low[j] + g.high[j] * x.high[j];
      }
    }
    const float sum = head_sum(products, in.lanes);
    if (!is_here) return;
    if (is_value) return store_pair<T, n>(g, dqkv + begin, half);
    const float rstd = is_key ? k_rstd[row * kv_heads + head - q_heads] : q_rstd[row * q_heads + head];
    const float along = rstd * rstd * rstd * (sum / static_cast<float>(head_dim));
#pragma unroll
    for (int j = 0; j < n; ++j) {
      g.low[j] = rstd * g.low[j] - along * x.low[j];
      g.high[j] = rstd * g.high[j] - along * x.high[j];
    }
    store_pair<T, n>(g, dqkv + begin, half);
  });
}

// Lanes for a head: a power of two, so that they lie in one warp.
int lanes_of(std::int64_t head_dim, int n) {
  int lanes = 1;
  while (static_cast<std::int64_t>(lanes) * n < head_dim / 2) lanes *= 2;
  return lanes;
}

Heads heads_of(const QkNormOnDevice& in, int n) {
  return {.rows = in.rows,
          .q_heads = in.layout.heads,
          .kv_heads = in.layout.kv_heads,
          .head_dim = in.layout.head_dim,
          .lanes = lanes_of(in.layout.head_dim, n),
          .is_fp32 = in.is_fp32,
          .offset = in.offset,
          .eps = in.eps};
}

unsigned grid_of(std::int64_t heads, int lanes) { return device::blocks_of(heads, kThreads / lanes); }

}  // namespace

void launch_norm_and_rotate(CudaElement element, const QkNormOnDevice& in, const void* qkv, void* out,
                            float* q_rstd, float* k_rstd, void* stream) {
  if (in.rows == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const Heads heads = heads_of(in, device::kElements<T, true>);
    const unsigned grid = grid_of(in.rows * (heads.q_heads + 2 * heads.kv_heads), heads.lanes);
    norm_and_rotate_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        heads, in.q_weight, in.k_weight, in.cos, in.sin, static_cast<const T*>(qkv), static_cast<T*>(out),
        q_rstd, k_rstd);
  });
  device::check_launch("norm_and_rotate", cudaGetLastError());
}

void launch_norm_and_rotate_backward(CudaElement element, const QkNormOnDevice& in,
                                     const HeadsOnDevice& gradients, const void* qkv, const float* q_rstd,
                                     const float* k_rstd, void* dqkv, void* stream) {
  if (in.rows == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const Heads heads = heads_of(in, device::kElements<T, true>);
    const unsigned grid = grid_of(in.rows * (heads.q_heads + 2 * heads.kv_heads), heads.lanes);
    norm_and_rotate_backward_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        heads, in.q_weight, in.k_weight, in.cos, in.sin, static_cast<const T*>(qkv), q_rstd, k_rstd,
        GradientRows{gradients.q_row, gradients.k_row, gradients.v_row}, static_cast<const T*>(gradients.q),
        static_cast<const T*>(gradients.k), static_cast<const T*>(gradients.v), static_cast<T*>(dqkv));
  });
  device::check_launch("norm_and_rotate_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
