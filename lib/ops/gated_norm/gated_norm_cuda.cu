// Lanes of a warp share a head, one access each: a head is read once, and its sums are a few shuffles.
#include "ops/gated_norm/gated_norm_cuda.h"

#include <type_traits>

#include "ops/activation/activate.h"
#include "ops/norm/load_parameters.h"

namespace lorikeet::ops {
namespace {

using device::activate;
using device::Activated;
using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 128;

// The sum over the lanes of a head, in each of them. All threads of a block call it.
__device__ __forceinline__ float head_sum(float value, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, apart);
  return value;
}

// All but the pointers, which are arguments of their own.
struct Heads {
  std::int64_t rows, heads, head_dim, z_row;
  int lanes;  // of a head
  bool is_fp32;
  float eps;

  // The element of its head at which this thread's access begins.
  template <int n>
  __device__ __forceinline__ std::int64_t first() const {
    return static_cast<int>(threadIdx.x) % lanes * n;
  }

  // Calls f(begin, row, column, is_here) for the heads of this thread: where its access begins in a dense
  // matrix and in a row of it. As often in every thread of a block: is_here is false behind the last head,
  // and in lanes that have no elements because head_dim is no power of two.
  template <int n, typename F>
  __device__ __forceinline__ void visit(const F& f) const {
    const std::int64_t per_block = kThreads / lanes, all = rows * heads;
    const std::int64_t i = first<n>();
    for (std::int64_t begin = blockIdx.x * per_block; begin < all; begin += gridDim.x * per_block) {
      const std::int64_t at = begin + static_cast<int>(threadIdx.x) / lanes;
      const std::int64_t row = at / heads;
      f(at * head_dim + i, row, (at - row * heads) * head_dim + i, i < head_dim && at < all);
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    gated_norm_kernel(Heads in, const T* x, const T* z, const void* weight, T* y) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t i = in.first<n>();
  in.visit<n>([&](std::int64_t begin, std::int64_t row, std::int64_t column, bool is_here) {
    float values[n] = {}, gate[n] = {}, w[n];
    if (is_here) {
      unpack<T, n>(load_pack<n>(x + begin), values);
      unpack<T, n>(load_pack<n>(z + row * in.z_row + column), gate);
    }
    float squares = 0;
#pragma unroll
    for (int j = 0; j < n; ++j) squares += values[j] * values[j];
    const float rstd = 1.0F / sqrtf(head_sum(squares, in.lanes) / static_cast<float>(in.head_dim) + in.eps);
    if (!is_here) return;
    device::load_parameters<T, n>(weight, in.is_fp32, i, 0.0F, w);
#pragma unroll
    for (int j = 0; j < n; ++j) values[j] *= rstd * w[j] * activate(Activation::kSilu, gate[j]).value;
    store_pack<n>(device::pack<T, n>(values), y + begin);
  });
}

// With n = x rstd and g = w silu(z) dy, the gradient of n:
//   dx = rstd g - x rstd^3 mean(g x),   dz = w n dy silu'(z).
// dz may be z: a thread writes what it alone reads, after it has read it.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gated_norm_backward_kernel(Heads in, const T* x, const T* z, const void* weight, T* dy, T* dz,
                               std::int64_t dz_row, T* again) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t i = in.first<n>();
  in.visit<n>([&](std::int64_t begin, std::int64_t row, std::int64_t column, bool is_here) {
    float values[n] = {}, gate[n] = {}, g[n] = {}, w[n] = {};
    if (is_here) {
      unpack<T, n>(load_pack<n>(x + begin), values);
      unpack<T, n>(load_pack<n>(z + row * in.z_row + column), gate);
      unpack<T, n>(load_pack<n>(dy + begin), g);
      device::load_parameters<T, n>(weight, in.is_fp32, i, 0.0F, w);
    }
    float squares = 0, products = 0;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      squares += values[j] * values[j];
      products += values[j] * (g[j] * w[j] * activate(Activation::kSilu, gate[j]).value);
    }
    const auto width = static_cast<float>(in.head_dim);
    const float rstd = 1.0F / sqrtf(head_sum(squares, in.lanes) / width + in.eps);
    const float along = rstd * rstd * rstd * (head_sum(products, in.lanes) / width);
    if (!is_here) return;
    float y[n];
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const Activated activated = activate(Activation::kSilu, gate[j]);
      y[j] = values[j] * (rstd * w[j] * activated.value);
      gate[j] = g[j] * w[j] * values[j] * rstd * activated.slope;
      g[j] = rstd * (g[j] * w[j] * activated.value) - along * values[j];
    }
    store_pack<n>(device::pack<T, n>(g), dy + begin);
    store_pack<n>(device::pack<T, n>(gate), dz + row * dz_row + column);
    if (again != nullptr) store_pack<n>(device::pack<T, n>(y), again + begin);
  });
}

// Lanes for a head: a power of two, so that they lie in one warp.
int lanes_of(std::int64_t head_dim, int n) {
  int lanes = 1;
  while (static_cast<std::int64_t>(lanes) * n < head_dim) lanes *= 2;
  return lanes;
}

Heads heads_of(const GatedNormOnDevice& in, int n) {
  return {.rows = in.rows,
          .heads = in.heads,
          .head_dim = in.head_dim,
          .z_row = in.z_row,
          .lanes = lanes_of(in.head_dim, n),
          .is_fp32 = in.is_fp32,
          .eps = in.eps};
}

unsigned grid_of(const Heads& heads) {
  return device::blocks_of(heads.rows * heads.heads, kThreads / heads.lanes);
}

}  // namespace

void launch_gated_norm(CudaElement element, const GatedNormOnDevice& in, void* y, void* stream) {
  if (in.rows == 0 || in.heads == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const Heads heads = heads_of(in, device::kElements<T, true>);
    gated_norm_kernel<T><<<grid_of(heads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        heads, static_cast<const T*>(in.x), static_cast<const T*>(in.z), in.weight, static_cast<T*>(y));
  });
  device::check_launch("gated_norm", cudaGetLastError());
}

void launch_gated_norm_backward(CudaElement element, const GatedNormOnDevice& in, void* dy, void* dz,
                                std::int64_t dz_row, void* again, void* stream) {
  if (in.rows == 0 || in.heads == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const Heads heads = heads_of(in, device::kElements<T, true>);
    gated_norm_backward_kernel<T><<<grid_of(heads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        heads, static_cast<const T*>(in.x), static_cast<const T*>(in.z), in.weight, static_cast<T*>(dy),
        static_cast<T*>(dz), dz_row, static_cast<T*>(again));
  });
  device::check_launch("gated_norm_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
