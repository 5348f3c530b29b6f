#include "ops/quantized/float8_cuda.h"

#include <type_traits>

#include "ops/cuda_vector.h"
#include "ops/quantized/float8.h"

namespace lorikeet::ops {
namespace {

constexpr int kThreads = 256, kWarp = 32, kGroup = 8;

// One thread `kEach` neighbouring numbers of a row, which have one scale; rows over gridDim.y in strides. A
// matrix of the stack for each of gridDim.z.
template <typename T, int kEach>
__global__ void __launch_bounds__(kThreads)
    decode_float8_kernel(const std::uint8_t* codes, const float* scales, std::int64_t cols,
                         std::int64_t block_rows, std::int64_t block_cols, std::int64_t scale_cols,
                         std::int64_t first, std::int64_t rows, std::int64_t bytes_apart,
                         std::int64_t out_apart, T* out) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (col >= cols) return;
  codes += blockIdx.z * bytes_apart;
  out += blockIdx.z * out_apart;
  const float* col_scales = device::shifted(scales, blockIdx.z * bytes_apart) + col / block_cols;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const float scale = col_scales[(first + row) / block_rows * scale_cols];
    const device::Bits<kEach> read = device::load_pack<kEach>(codes + (first + row) * cols + col);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&read);
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = float8_value(bytes[i]) * scale;
    T* to = out + row * cols + col;
    if constexpr (kEach == 1) {
      device::narrow(values[0], *to);
    } else {
      device::store_rounded<kEach>(values, to);
    }
  }
}

template <typename T, int kEach>
void launch_decode(const Float8Matrix& matrix, const QuantizedStack& stack, std::int64_t first,
                   std::int64_t rows, T* out, cudaStream_t stream) {
  dim3 grid = device::grid_of_rows(rows, matrix.cols, std::int64_t{kThreads} * kEach);
  grid.z = static_cast<unsigned>(stack.count);
  decode_float8_kernel<T, kEach><<<grid, kThreads, 0, stream>>>(
      matrix.codes, matrix.scales, matrix.cols, matrix.block_rows, matrix.block_cols, matrix.scale_cols,
      first, rows, stack.bytes_apart, stack.out_apart, out);
}

// Larger of both; NaN where one is.
__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

// One block a row, in strides. First pass: the row's largest absolute value, reduced over the block; second
// pass, from cache: the codes.
template <typename T, int n>
__global__ void __launch_bounds__(kThreads)
    encode_float8_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                         float least_scale, std::uint8_t* codes, float* scales) {
  __shared__ float of_warps[kThreads / kWarp];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = x + row * stride;
    float values[n];
    float largest = 0;
    for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * n; i < cols; i += kThreads * n) {
      device::unpack<T, n>(device::load_pack<n>(from + i), values);
#pragma unroll
      for (int j = 0; j < n; ++j) largest = larger(fabsf(values[j]), largest);
    }
#pragma unroll
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
      largest = larger(__shfl_xor_sync(0xFFFFFFFFU, largest, lanes), largest);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = largest;
    __syncthreads();
    for (int warp = 0; warp < kThreads / kWarp; ++warp) largest = larger(of_warps[warp], largest);
    __syncthreads();  // the next row writes there
    const float scale = larger(largest / kFloat8Largest, least_scale);
    if (threadIdx.x == 0) scales[row] = scale;
    for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * n; i < cols; i += kThreads * n) {
      device::unpack<T, n>(device::load_pack<n>(from + i), values);
      device::Bits<n> packed;
      auto* bytes = reinterpret_cast<std::uint8_t*>(&packed);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const float value = values[j] / scale;
        bytes[j] = value != value ? kFloat8Nan : float8_code(value);
      }
      device::store_pack<n>(packed, codes + row * cols + i);
    }
  }
}

template <typename T, int n>
void launch_encode(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, float least_scale,
                   std::uint8_t* codes, float* scales, cudaStream_t stream) {
  encode_float8_kernel<T, n><<<device::blocks_of(rows, 1), kThreads, 0, stream>>>(x, rows, cols, stride,
                                                                                  least_scale, codes, scales);
}

}  // namespace

void launch_decode_float8(const Float8Matrix& matrix, const QuantizedStack& stack, std::int64_t first,
                          std::int64_t rows, CudaElement element, void* out, void* stream) {
  if (rows * matrix.cols * stack.count == 0) return;
  const bool in_groups = matrix.cols % kGroup == 0 && matrix.block_cols % kGroup == 0 &&
                         device::is_aligned(matrix.codes) && device::is_aligned(out) &&
                         stack.bytes_apart % 16 == 0 && stack.out_apart % kGroup == 0;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    const auto on = static_cast<cudaStream_t>(stream);
    if (in_groups) {
      launch_decode<T, kGroup>(matrix, stack, first, rows, static_cast<T*>(out), on);
    } else {
      launch_decode<T, 1>(matrix, stack, first, rows, static_cast<T*>(out), on);
    }
  });
  device::check_launch("fp8", cudaGetLastError());
}

void launch_encode_float8(CudaElement element, const void* x, std::int64_t rows, std::int64_t cols,
                          std::int64_t stride, float least_scale, std::uint8_t* codes, float* scales,
                          void* stream) {
  if (rows == 0 || cols == 0) return;
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int kWide = device::kElements<T, true>;
    const auto on = static_cast<cudaStream_t>(stream);
    const auto* from = static_cast<const T*>(x);
    if (cols % kWide == 0 && stride % kWide == 0 && device::is_aligned(x) && device::is_aligned(codes)) {
      launch_encode<T, kWide>(from, rows, cols, stride, least_scale, codes, scales, on);
    } else {
      launch_encode<T, 1>(from, rows, cols, stride, least_scale, codes, scales, on);
    }
  });
  device::check_launch("fp8", cudaGetLastError());
}

}  // namespace lorikeet::ops
