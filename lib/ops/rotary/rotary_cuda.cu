#include "ops/rotary/rotary_cuda.h"

#include <type_traits>

#include "ops/cuda_heads.h"
#include "ops/rotary/rotate_pairs.h"

namespace lorikeet::ops {
namespace {

using device::load_pack;
using device::rotate_accesses;
using device::store_pack;
using device::unpack;

constexpr int kThreads = 128;

// One thread n pairs of one head, rows over gridDim.y in strides. `accesses`: a head's pairs over n.
template <typename T, int n, bool interleaved>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(T* qkv, const float* cos, const float* sin, std::int64_t rows, std::int64_t width,
                  std::int64_t heads, std::int64_t head_dim, std::int64_t half, std::int64_t accesses,
                  float sign) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= heads * accesses) return;
  const std::int64_t head = at / accesses, i = (at - head * accesses) * n;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* low = qkv + row * width + head * head_dim + (interleaved ? 2 * i : i);
    T* high = low + (interleaved ? n : half);
    float a[n], b[n];
    unpack<T, n>(load_pack<n>(low), a);
    unpack<T, n>(load_pack<n>(high), b);
    rotate_accesses<interleaved>(a, b, cos + row * half + i, sin + row * half + i, sign);
    store_pack<n>(device::pack<T, n>(a), low);
    store_pack<n>(device::pack<T, n>(b), high);
  }
}

// The tensor of queries, keys or values that heads come from.
struct Source {
  std::int64_t heads;    // of the tensor
  std::int64_t row;      // elements from one of its rows to the next
  std::int64_t rotated;  // pairs of each head
};

// One thread n pairs of one head, or as many of the elements that stay, in pairs that lie as far apart as
// half of these; rows over gridDim.y in strides.
template <typename T, int n, bool interleaved>
__global__ void __launch_bounds__(kThreads)
    rotary_backward_kernel(const T* q, const T* k, const T* v, Source of_q, Source of_k, Source of_v,
                           const float* cos, const float* sin, std::int64_t rows, std::int64_t width,
                           std::int64_t head_dim, std::int64_t half, T* packed) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t accesses = head_dim / 2 / n;
  std::int64_t head = at / accesses;
  const std::int64_t i = (at - head * accesses) * n, column = head * head_dim;
  if (column >= width) return;
  const T* from = q;
  Source source = of_q;
  if (head >= of_q.heads + of_k.heads) {
    head -= of_q.heads + of_k.heads;
    from = v;
    source = of_v;
  } else if (head >= of_q.heads) {
    head -= of_q.heads;
    from = k;
    source = of_k;
  }
  const bool turns = i < source.rotated;
  std::int64_t low = source.rotated + i, apart = head_dim / 2 - source.rotated;
  if (turns) {
    low = interleaved ? 2 * i : i;
    apart = interleaved ? n : source.rotated;
  }
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* read = from + row * source.row + head * head_dim + low;
    T* written = packed + row * width + column + low;
    float a[n], b[n];
    unpack<T, n>(load_pack<n>(read), a);
    unpack<T, n>(load_pack<n>(read + apart), b);
    if (turns) rotate_accesses<interleaved>(a, b, cos + row * half + i, sin + row * half + i, -1.0F);
    store_pack<n>(device::pack<T, n>(a), written);
    store_pack<n>(device::pack<T, n>(b), written + apart);
  }
}

template <typename T, int n>
void launch_backward(const HeadsOnDevice& heads, const float* cos, const float* sin, std::int64_t rows,
                     const HeadLayout& layout, std::int64_t half, T* packed, cudaStream_t stream) {
  const std::int64_t accesses = layout.width() / 2 / n;
  const dim3 grid = device::grid_of_rows(rows, accesses, kThreads);
  const auto kernel =
      layout.interleaved ? rotary_backward_kernel<T, n, true> : rotary_backward_kernel<T, n, false>;
  kernel<<<grid, kThreads, 0, stream>>>(
      static_cast<const T*>(heads.q), static_cast<const T*>(heads.k), static_cast<const T*>(heads.v),
      Source{layout.heads, heads.q_row, half}, Source{layout.kv_heads, heads.k_row, half},
      Source{layout.kv_heads, heads.v_row, 0}, cos, sin, rows, layout.width(), layout.head_dim, half, packed);
}

template <typename T, int n>
void launch(T* qkv, const float* cos, const float* sin, std::int64_t rows, const HeadLayout& layout,
            std::int64_t half, bool inverse, cudaStream_t stream) {
  const std::int64_t heads = layout.heads + layout.kv_heads, accesses = half / n;
  const dim3 grid = device::grid_of_rows(rows, heads * accesses, kThreads);
  const auto kernel = layout.interleaved ? rotary_kernel<T, n, true> : rotary_kernel<T, n, false>;
  kernel<<<grid, kThreads, 0, stream>>>(qkv, cos, sin, rows, layout.width(), heads, layout.head_dim, half,
                                        accesses, inverse ? -1.0F : 1.0F);
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

void launch_rotary_backward(CudaElement element, const HeadsOnDevice& heads, const float* cos,
                            const float* sin, std::int64_t rows, const HeadLayout& layout, std::int64_t half,
                            void* packed, void* stream) {
  if (rows == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  device::dispatch(element, [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    constexpr int kWide = device::kElements<T, true>;
    const bool aligned = device::are_aligned(heads, kWide) && device::is_aligned(packed) &&
                         device::is_aligned(cos) && device::is_aligned(sin) && half % kWide == 0 &&
                         layout.head_dim % (2 * kWide) == 0;
    if (aligned) {
      launch_backward<T, kWide>(heads, cos, sin, rows, layout, half, static_cast<T*>(packed), on);
    } else {
      launch_backward<T, 1>(heads, cos, sin, rows, layout, half, static_cast<T*>(packed), on);
    }
  });
  device::check_launch("rotate_backward", cudaGetLastError());
}

}  // namespace lorikeet::ops
