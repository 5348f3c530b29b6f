#include "ops/rotary/rotary_cuda.h"

#include <type_traits>

#include "ops/rotary/rotate_pairs.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 128;

// One thread n pairs of one head, rows over gridDim.y in strides. `accesses`: of a head's lower half.
template <typename T, int n>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(T* qkv, const float* cos, const float* sin, std::int64_t rows, std::int64_t width,
                  std::int64_t heads, std::int64_t head_dim, std::int64_t half, std::int64_t accesses,
                  float sign) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= heads * accesses) return;
  const std::int64_t head = at / accesses, i = (at - head * accesses) * n;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* low = qkv + row * width + head * head_dim + i;
    T* high = low + half;
    float a[n], b[n];
    unpack<T, n>(load_pack<n>(low), a);
    unpack<T, n>(load_pack<n>(high), b);
    device::rotate_pairs(a, b, cos + row * half + i, sin + row * half + i, sign);
    store_pack<n>(device::pack<T, n>(a), low);
    store_pack<n>(device::pack<T, n>(b), high);
  }
}

template <typename T, int n>
void launch(T* qkv, const float* cos, const float* sin, std::int64_t rows, const HeadLayout& layout,
            std::int64_t half, bool inverse, cudaStream_t stream) {
  const std::int64_t heads = layout.heads + layout.kv_heads, accesses = half / n;
  const dim3 grid = device::grid_of_rows(rows, heads * accesses, kThreads);
  rotary_kernel<T, n><<<grid, kThreads, 0, stream>>>(qkv, cos, sin, rows, layout.width(), heads,
                                                     layout.head_dim, half, accesses, inverse ? -1.0F : 1.0F);
}

}  // namespace

void launch_rotary(CudaElement element, void* qkv, const float* cos, const float* sin, std::int64_t rows,
                   const HeadLayout& layout, std::int64_t half, bool inverse, void* stream) {
  if (rows == 0 || half == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int kWide = device::kElements<T, true>;
    const bool aligned = device::is_aligned(qkv) && device::is_aligned(cos) && device::is_aligned(sin) &&
                         half % kWide == 0 && layout.head_dim % kWide == 0;
    if (aligned) {
      launch<T, kWide>(static_cast<T*>(qkv), cos, sin, rows, layout, half, inverse, on);
    } else {
      launch<T, 1>(static_cast<T*>(qkv), cos, sin, rows, layout, half, inverse, on);
    }
  });
  device::check_launch("rotate", cudaGetLastError());
}

}  // namespace lorikeet::ops
