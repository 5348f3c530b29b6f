#include "ops/lora/dora_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"

namespace lorikeet::ops {
namespace {

using device::load_floats;
using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 256;
// Of backward's blocks: a warp has neighbouring columns, warps alternate over a run's rows.
constexpr int kWarp = 32, kWarps = 8;

// One thread an access of n columns; rows over gridDim.y in strides.
template <typename T, int n>
__global__ void __launch_bounds__(kThreads)
    scale_columns_kernel(const T* x, const float* factors, const T* bias, std::int64_t rows,
                         std::int64_t cols, T* y) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * n;
  if (col >= cols) return;
  float scale[n], offset[n], values[n];
  load_floats<n>(factors + col, scale);
  if (bias != nullptr) unpack<T, n>(load_pack<n>(bias + col), offset);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    unpack<T, n>(load_pack<n>(x + row * cols + col), values);
#pragma unroll
    for (int j = 0; j < n; ++j) values[j] *= scale[j];
    if (bias != nullptr) {
#pragma unroll
      for (int j = 0; j < n; ++j) values[j] += offset[j];
    }
    store_pack<n>(device::pack<T, n>(values), y + row * cols + col);
  }
}

// One block 32 accesses of columns and a run of rows. Its warps' sums are added in their order.
template <typename T, int n>
__global__ void __launch_bounds__(kWarp* kWarps)
    scale_columns_backward_kernel(const T* dy, const T* x, const float* factors, std::int64_t rows,
                                  std::int64_t cols, T* dx, float* sums) {
  __shared__ float of_warps[kWarps][kWarp * n];
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x) * n;
  const std::int64_t runs = (rows + kScaleColumnsRows - 1) / kScaleColumnsRows;
  for (std::int64_t run = blockIdx.y; run < runs; run += gridDim.y) {
    float total[n];
#pragma unroll
    for (int j = 0; j < n; ++j) total[j] = 0;
    if (col < cols) {
      float scale[n], gradient[n], values[n];
      load_floats<n>(factors + col, scale);
      const std::int64_t behind = (run + 1) * kScaleColumnsRows, end = behind < rows ? behind : rows;
      for (std::int64_t row = run * kScaleColumnsRows + threadIdx.y; row < end; row += kWarps) {
        unpack<T, n>(load_pack<n>(dy + row * cols + col), gradient);
        unpack<T, n>(load_pack<n>(x + row * cols + col), values);
#pragma unroll
        for (int j = 0; j < n; ++j) {
          total[j] += gradient[j] * values[j];
          gradient[j] *= scale[j];
        }
        store_pack<n>(device::pack<T, n>(gradient), dx + row * cols + col);
      }
    }
#pragma unroll
    for (int j = 0; j < n; ++j) of_warps[threadIdx.y][j * kWarp + threadIdx.x] = total[j];
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
#pragma unroll
      for (int j = 0; j < n; ++j) {
        float sum = 0;
        for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp][j * kWarp + threadIdx.x];
        sums[run * cols + col + j] = sum;
      }
    }
    __syncthreads();  // the next run writes there
  }
}

// Calls f with the elements of an access.
template <typename T, typename F>
void with_access(bool aligned, const F& f) {
  if (aligned) {
    f(std::integral_constant<int, device::kElements<T, true>>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

}  // namespace

void launch_scale_columns(CudaElement element, const void* x, const float* factors, const void* bias,
                          std::int64_t rows, std::int64_t cols, void* y, void* stream) {
  if (rows == 0 || cols == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const bool aligned = cols % device::kElements<T, true> == 0 && device::is_aligned(x) &&
                         device::is_aligned(factors) && device::is_aligned(bias) && device::is_aligned(y);
    with_access<T>(aligned, [&](auto of_access) {
      constexpr int n = of_access;
      const dim3 grid = device::grid_of_rows(rows, cols, std::int64_t{kThreads} * n);
      scale_columns_kernel<T, n><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          static_cast<const T*>(x), factors, static_cast<const T*>(bias), rows, cols, static_cast<T*>(y));
    });
  });
  device::check_launch("dora", cudaGetLastError());
}

void launch_scale_columns_backward(CudaElement element, const void* dy, const void* x, const float* factors,
                                   std::int64_t rows, std::int64_t cols, void* dx, float* sums,
                                   void* stream) {
  if (rows == 0 || cols == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const bool aligned = cols % device::kElements<T, true> == 0 && device::is_aligned(dy) &&
                         device::is_aligned(x) && device::is_aligned(factors) && device::is_aligned(dx);
    with_access<T>(aligned, [&](auto of_access) {
      constexpr int n = of_access;
      const std::int64_t runs = (rows + kScaleColumnsRows - 1) / kScaleColumnsRows;
      const dim3 grid = device::grid_of_rows(runs, cols, std::int64_t{kWarp} * n);
      scale_columns_backward_kernel<T, n>
          <<<grid, dim3(kWarp, kWarps), 0, static_cast<cudaStream_t>(stream)>>>(
              static_cast<const T*>(dy), static_cast<const T*>(x), factors, rows, cols, static_cast<T*>(dx),
              sums);
    });
  });
  device::check_launch("dora", cudaGetLastError());
}

}  // namespace lorikeet::ops
