// Spreading and combining: one thread an access of n elements, tokens over gridDim.y in strides. Products of
// rows: a warp a row.
#include "ops/experts/expert_rows_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 256, kWarp = 32;

// All but the pointers, which are arguments of their own.
struct Shape {
  std::int64_t tokens, width, per_token;
};

template <typename T, bool weighted>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(Shape in, const std::int64_t* places, const float* weights, const T* x, T* rows) {
  constexpr int n = device::kElements<T, true>;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (i >= in.width) return;
  for (std::int64_t token = blockIdx.y; token < in.tokens; token += gridDim.y) {
    const auto own = load_pack<n>(x + token * in.width + i);
    for (std::int64_t j = token * in.per_token; j < (token + 1) * in.per_token; ++j) {
      T* const to = rows + places[j] * in.width + i;
      if constexpr (weighted) {
        float values[n];
        unpack<T, n>(own, values);
#pragma unroll
        for (int e = 0; e < n; ++e) values[e] *= weights[j];
        store_pack<n>(device::pack<T, n>(values), to);
      } else {
        store_pack<n>(own, to);
      }
    }
  }
}

template <typename T, bool weighted>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(Shape in, const std::int64_t* places, const float* weights, const T* rows, T* out) {
  constexpr int n = device::kElements<T, true>;
  // Rows that a thread loads before it adds the first.
  constexpr int kAhead = 4;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (i >= in.width) return;
  for (std::int64_t token = blockIdx.y; token < in.tokens; token += gridDim.y) {
    const std::int64_t first = token * in.per_token;
    float sums[n] = {};
    for (std::int64_t j = 0; j < in.per_token; j += kAhead) {
      device::Pack<T, n> packs[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (j + a < in.per_token) packs[a] = load_pack<n>(rows + places[first + j + a] * in.width + i);
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (j + a >= in.per_token) continue;
        float values[n];
        unpack<T, n>(packs[a], values);
        const float weight = weighted ? weights[first + j + a] : 1.0F;
#pragma unroll
        for (int e = 0; e < n; ++e) sums[e] += weight * values[e];
      }
    }
    store_pack<n>(device::pack<T, n>(sums), out + token * in.width + i);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    products_kernel(std::int64_t rows, std::int64_t width, const T* a, const T* b, float* out) {
  constexpr int n = device::kElements<T, true>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  constexpr int kWarps = kThreads / kWarp;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp; row < rows;
       row += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    float sum = 0;
    for (std::int64_t i = static_cast<std::int64_t>(lane) * n; i < width; i += kWarp * n) {
      float of_a[n], of_b[n];
      unpack<T, n>(load_pack<n>(a + row * width + i), of_a);
      unpack<T, n>(load_pack<n>(b + row * width + i), of_b);
#pragma unroll
      for (int e = 0; e < n; ++e) sum += of_a[e] * of_b[e];
    }
#pragma unroll
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
    if (lane == 0) out[row] = sum;
  }
}

template <typename T>
dim3 grid_of(const ExpertRowsOnDevice& in) {
  return device::grid_of_rows(in.tokens, in.width, std::int64_t{kThreads} * device::kElements<T, true>);
}

}  // namespace

void launch_spread_rows(CudaElement element, const ExpertRowsOnDevice& in, const void* x, void* rows,
                        void* stream) {
  if (in.tokens == 0 || in.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const auto kernel = in.weights != nullptr ? spread_kernel<T, true> : spread_kernel<T, false>;
    kernel<<<grid_of<T>(in), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        {in.tokens, in.width, in.per_token}, in.places, in.weights, static_cast<const T*>(x),
        static_cast<T*>(rows));
  });
  device::check_launch("spread_rows", cudaGetLastError());
}

void launch_combine_rows(CudaElement element, const ExpertRowsOnDevice& in, const void* rows, void* out,
                         void* stream) {
  if (in.tokens == 0 || in.width == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const auto kernel = in.weights != nullptr ? combine_kernel<T, true> : combine_kernel<T, false>;
    kernel<<<grid_of<T>(in), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        {in.tokens, in.width, in.per_token}, in.places, in.weights, static_cast<const T*>(rows),
        static_cast<T*>(out));
  });
  device::check_launch("combine_rows", cudaGetLastError());
}

void launch_row_products(CudaElement element, std::int64_t rows, std::int64_t width, const void* a,
                         const void* b, float* out, void* stream) {
  if (rows == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    products_kernel<T>
        <<<device::blocks_of(rows, kThreads / kWarp), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            rows, width, static_cast<const T*>(a), static_cast<const T*>(b), out);
  });
  device::check_launch("row_products", cudaGetLastError());
}

}  // namespace lorikeet::ops
